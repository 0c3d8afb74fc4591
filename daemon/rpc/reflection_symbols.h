/* Which names a .proto file defines. Pure functions. */
#pragma once

#include <stdbool.h>

#include "grpc/reflection/names.pb-c.h"

/* symbol: full name of a message, field, enum, value, service or method, without a leading dot. */
bool reflection_file_defines(const Dps__Reflection__File *file, const char *symbol);

/* The services that dpsd serves, as reflection hands them out: a google.protobuf.FileDescriptorSet
 * of dps.proto and the standard services, made by protoc. Constant. */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern const uint8_t dps_descriptors[];
extern const size_t dps_descriptors_size;

#include "proto/grpc_status.h"

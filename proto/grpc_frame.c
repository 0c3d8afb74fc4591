#include "proto/grpc_frame.h"

#include "proto/tensor.h"

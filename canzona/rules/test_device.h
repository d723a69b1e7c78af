// Tests that need a GPU skip where there is none.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "canzona/linalg/cuda_device.h"

#define CANZONA_NEEDS_GPU()                                      \
  if (std::string why_not; !canzona::find_cuda_device(&why_not)) \
  GTEST_SKIP() << why_not

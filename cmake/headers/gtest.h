// Most tests include these headers, which are compiled once.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "std.h"

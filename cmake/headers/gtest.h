// What most tests include, compiled once.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "std.h"

// Counts calls of operator new in this program. For test programs that link
// canzona_test_allocations.
//
//   const int64_t before = num_allocations();
//   step();
//   EXPECT_EQ(num_allocations(), before);
#pragma once

#include <cstdint>

namespace canzona {

// Counted over all threads.
int64_t num_allocations();

}  // namespace canzona

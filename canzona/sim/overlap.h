// How far communication runs beside compute.
#pragma once

namespace canzona {

enum class Overlap {
  kNone,        // every operation is waited for where it arises
  kMain,        // one gather ahead, one scatter behind
  kBackground,  // as far as the pools reach
};

}  // namespace canzona

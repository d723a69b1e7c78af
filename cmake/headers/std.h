// Most sources of this project include these headers, which are compiled once.
// A source still includes what it uses: a build without CANZONA_JUMBO does not
// see this file. Larger headers (json, thread, random) would cost more to load
// than they save.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Long containers of an untrusted JSON text, value by value, so that they are
// never in memory as a whole:
//
//   Json rest = parse_json(text, {.what = file},
//                          {{"model", "vocab", [&](std::string&& name,
//                                                  Json&& value) { … }}});
//
// The promises of parse_json() (json_reader.h) hold, except that a key that
// comes twice in such a container is left to the caller.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_reader.h"

namespace canzona {

// A container that is a member of a member of the root.
struct StreamedContainer {
  std::string outer;
  std::string inner;
  // Gets each value as soon as it is complete, with its key; "" in an array.
  // The container stays in the tree without it.
  std::function<void(std::string&& key, Json&& value)> take;
};

Json parse_json(std::string_view text, const JsonLimits& limits,
                const std::vector<StreamedContainer>& streamed);

}  // namespace canzona

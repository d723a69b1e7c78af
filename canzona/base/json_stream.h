// Reads long containers of an untrusted JSON text value by value, so that they
// are never in memory as a whole:
//
//   Json rest = parse_json(text, {.what = file},
//                          {{"model", "vocab", [&](std::string&& name,
//                                                  Json&& value) { … }}});
//
// parse_json() (json_reader.h) makes the same promises, except that the caller
// checks such a container for duplicate keys.
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
  // Receives each value as soon as it is complete, with its key ("" in an
  // array). The container stays in the tree without its values.
  std::function<void(std::string&& key, Json&& value)> take;
};

Json parse_json(std::string_view text, const JsonLimits& limits,
                const std::vector<StreamedContainer>& streamed);

}  // namespace canzona

// dump_logits <model> <tokens> <sequences> <length> <logits>
//
// The logits that our decoder gives for `sequences` x `length` tokens, which
// the file <tokens> has as int32, row after row; they become fp32 in <logits>.
// <model> is what `canzona train --init` takes.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/train/model_source.h"

namespace canzona::tests {
namespace {

constexpr int64_t kMostTokens = 1 << 24;

void dump_logits(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5)
    throw UsageError(
        "dump_logits: expected model, tokens, sequences, length "
        "and the file for logits");
  const LocalSizes sizes{
      .length = parse_integer(arguments[3], 1, kMostTokens, "length"),
      .micro_batch = parse_integer(arguments[2], 1, kMostTokens, "sequences")};
  const std::string bytes =
      read_file(arguments[1], 4 * kMostTokens, "the tokens");
  std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(int32_t));
  const auto model = open_local_decoder(find_model(arguments[0]), sizes);
  FileWriter file(arguments[4]);
  model->logits(tokens, [&](int64_t, std::span<const float> rows) {
    file.write({reinterpret_cast<const char*>(rows.data()), rows.size_bytes()});
  });
  file.finish();
}

}  // namespace
}  // namespace canzona::tests

int main(int count, char** words) {
  try {
    canzona::tests::dump_logits({words + 1, words + count});
    return 0;
  } catch (const canzona::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

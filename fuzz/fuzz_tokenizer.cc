// The input as a tokenizer.json: refused with a UsageError, or a tokenizer that
// encodes what it is given. The input as a text: comes back from its tokens,
// byte for byte or in its normal form, however it is cut.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/data/tokenizer.h"
#include "canzona/data/unicode.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string without(std::string text, std::string_view part) {
  const size_t at = text.find(part);
  require(at != std::string::npos);
  return text.erase(at, part.size());
}

// Every byte and two merges.
std::string plain_json() {
  std::string vocab;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain =
        (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    std::string name;
    canzona::data::append_utf8(name,
                               static_cast<char32_t>(is_plain ? byte : next));
    if (!is_plain) ++next;
    if (name == "\"" || name == "\\") name.insert(0, 1, '\\');
    vocab += "\"" + name + "\":" + std::to_string(byte) + ",";
  }
  return R"j({"version":"1.0","added_tokens":[{"id":258,"content":"<e>",)j"
         R"j("special":true}],"normalizer":{"type":"NFC"},)j"
         R"j("pre_tokenizer":{"type":"Sequence","pretokenizers":[)j"
         R"j({"type":"Split","behavior":"Isolated","pattern":{"Regex":)j"
         R"j("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|)j"
         R"j(\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|)j"
         R"j(\\s+(?!\\S)|\\s+"}},{"type":"ByteLevel","use_regex":false}]},)j"
         R"j("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)j" +
         vocab + R"j("th":256,"the":257},"merges":["t h",["th","e"]]}})j";
}

void check_text(std::string_view text) {
  static const canzona::data::Tokenizer nfc =
      canzona::data::parse_tokenizer(plain_json(), "nfc");
  static const canzona::data::Tokenizer raw = canzona::data::parse_tokenizer(
      without(plain_json(), R"("normalizer":{"type":"NFC"},)"), "raw");
  const std::string normal = canzona::data::to_nfc(text);
  require(canzona::data::to_nfc(normal) == normal);
  const std::vector<int32_t> tokens = raw.encode(text);
  require(raw.decode(tokens) == text);
  require(canzona::data::to_nfc(nfc.decode(nfc.encode(text))) == normal);
  const size_t cut = raw.separable(text);
  std::vector<int32_t> parts = raw.encode(text.substr(0, cut));
  for (const int32_t token : raw.encode(text.substr(cut)))
    parts.push_back(token);
  require(parts == tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kLongestText = 256;  // what is longer takes time alone
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (size <= kLongestText) check_text(text);
  if (!text.starts_with('{')) return 0;
  try {
    const canzona::data::Tokenizer tokenizer =
        canzona::data::parse_tokenizer(text, "tokenizer.json");
    for (const std::string_view some :
         {std::string_view("the 12345 \xFF\n\nthe"), text.substr(0, 200)})
      tokenizer.decode(tokenizer.encode(some));
  } catch (const canzona::UsageError&) {
  }
  return 0;
}

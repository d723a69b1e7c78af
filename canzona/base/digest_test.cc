#include "canzona/base/digest.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "canzona/base/digest_blocks.h"
#include "canzona/base/random.h"

namespace canzona::digest_test {
namespace {

// The examples of FIPS 180-2 appendix B and of NIST's byte-oriented test
// vectors (SHA256ShortMsg).
TEST(Sha256, AgreesWithTheStandard) {
  EXPECT_EQ(sha256_hex(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      sha256_hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                 "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_hex("\xd3"),
            "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
  EXPECT_EQ(sha256_hex("\x11\xaf"),
            "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98");
  EXPECT_EQ(sha256_hex("\xb4\x19\x0e"),
            "dff2e73091f6c05e528896c4c831b9448653dc2ff043528f6769437bc7b975c2");
}

// Around the lengths at which the padding needs another block.
TEST(Sha256, PadsEveryLength) {
  EXPECT_EQ(sha256_hex(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_hex(std::string(56, 'a')),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(sha256_hex(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  std::set<std::string> digests;
  for (size_t length = 0; length < 200; ++length) {
    digests.insert(sha256_hex(std::string(length, '\0')));
  }
  EXPECT_EQ(digests.size(), 200u);
}

TEST(Sha256, EveryByteCounts) {
  const std::string bytes(130, 'x');
  std::set<std::string> digests = {sha256_hex(bytes)};
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = 'y';
    digests.insert(sha256_hex(changed));
  }
  EXPECT_EQ(digests.size(), 131u);
}

// Bytes that differ from each other, the same in every run.
std::string mixed_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<char>(bits_at(7, i));
  return bytes;
}

TEST(Sha256, PiecesAreTheWhole) {
  const std::string bytes = mixed_bytes(1000);
  for (const size_t piece : {1, 7, 63, 64, 65, 128, 999}) {
    Sha256 hash;
    for (size_t at = 0; at < bytes.size(); at += piece)
      hash.add(std::string_view(bytes).substr(at, piece));
    hash.add("");
    EXPECT_EQ(hash.hex(), sha256_hex(bytes)) << piece;
  }
}

TEST(Sha256, TheProcessorsInstructionsGiveTheSame) {
  const Sha256Blocks hardware = sha256_blocks_hardware();
  if (hardware == nullptr) GTEST_SKIP() << "this processor has none";
  const std::string bytes = mixed_bytes(64 * 40 + 3);
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  for (size_t count = 0; count < 40; ++count) {
    std::array<uint32_t, 8> a = {1, 2, 3, 4, 5, 6, 7, 0xFFFFFFFF};
    std::array<uint32_t, 8> b = a;
    sha256_blocks_portable(a.data(), data + count % 4, count);
    hardware(b.data(), data + count % 4, count);
    EXPECT_EQ(a, b) << count;
  }
}

}  // namespace
}  // namespace canzona::digest_test

// SHA-256 and CRC-32C with the processor's instructions, chosen at run time.
// Only this file is compiled for them, so it must not include headers whose
// inline functions other files share.
#include "canzona/base/digest_blocks.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_SHA2) && \
    defined(__ARM_FEATURE_CRC32) && defined(__linux__)
#include <arm_acle.h>
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <string.h>
#include <sys/auxv.h>
#define CANZONA_DIGEST_ARM
#elif defined(__x86_64__) && defined(__SHA__) && defined(__SSE4_2__)
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#define CANZONA_DIGEST_X86
#endif

namespace canzona {

#if defined(CANZONA_DIGEST_ARM) || defined(CANZONA_DIGEST_X86)
namespace {

uint64_t hardware_word(const unsigned char* bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace
#endif

#ifdef CANZONA_DIGEST_ARM
namespace {

// Both instructions need the old state and overwrite one half of it. Compilers
// copy both halves in every round, on the critical path; one copy is enough.
inline void four_rounds(uint32x4_t& abcd, uint32x4_t& efgh, uint32x4_t word) {
  uint32x4_t old;
  asm("mov %[old].16b, %[abcd].16b\n\t"
      "sha256h %q[abcd], %q[efgh], %[word].4s\n\t"
      "sha256h2 %q[efgh], %q[old], %[word].4s"
      : [abcd] "+w"(abcd), [efgh] "+w"(efgh), [old] "=&w"(old)
      : [word] "w"(word));
}

void sha256_blocks_arm(uint32_t* state, const unsigned char* blocks,
                       size_t count) {
  uint32x4_t abcd = vld1q_u32(state);
  uint32x4_t efgh = vld1q_u32(state + 4);
  for (; count > 0; --count, blocks += 64) {
    const uint32x4_t abcd_before = abcd;
    const uint32x4_t efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(blocks + 16 * i)));
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const uint32x4_t word =
          vaddq_u32(w[i % 4], vld1q_u32(kSha256Round + 4 * i));
      four_rounds(abcd, efgh, word);
      if (i < 12)
        w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]),
                                   w[(i + 2) % 4], w[(i + 3) % 4]);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

void crc32c_groups_arm(uint32_t* lanes, const unsigned char* groups,
                       size_t count) {
  uint32_t a = lanes[0];
  uint32_t b = lanes[1];
  uint32_t c = lanes[2];
  uint32_t d = lanes[3];
  for (; count > 0; --count, groups += 32) {
    a = __crc32cd(a, hardware_word(groups));
    b = __crc32cd(b, hardware_word(groups + 8));
    c = __crc32cd(c, hardware_word(groups + 16));
    d = __crc32cd(d, hardware_word(groups + 24));
  }
  lanes[0] = a;
  lanes[1] = b;
  lanes[2] = c;
  lanes[3] = d;
}

}  // namespace

Sha256Blocks sha256_blocks_hardware() {
  return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0 ? sha256_blocks_arm : nullptr;
}

Crc32cGroups crc32c_groups_hardware() {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? crc32c_groups_arm : nullptr;
}

#elif defined(CANZONA_DIGEST_X86)
namespace {

// The instructions keep the state as ABEF and CDGH.
void sha256_blocks_x86(uint32_t* state, const unsigned char* blocks,
                       size_t count) {
  const __m128i swap =
      _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const auto* from = reinterpret_cast<const __m128i*>(state);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(from), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(from + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, cdab, 0xF0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * i)),
          swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m128i word = _mm_add_epi32(
          w[i % 4], _mm_load_si128(reinterpret_cast<const __m128i*>(
                        kSha256Round + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, word);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(word, 0x0E));
      if (i >= 12) continue;
      const __m128i later = _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4);
      w[i % 4] = _mm_sha256msg2_epu32(
          _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]), later),
          w[(i + 3) % 4]);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  auto* to = reinterpret_cast<__m128i*>(state);
  _mm_storeu_si128(to, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(to + 1, _mm_alignr_epi8(dchg, feba, 8));
}

void crc32c_groups_x86(uint32_t* lanes, const unsigned char* groups,
                       size_t count) {
  uint64_t a = lanes[0];
  uint64_t b = lanes[1];
  uint64_t c = lanes[2];
  uint64_t d = lanes[3];
  for (; count > 0; --count, groups += 32) {
    a = _mm_crc32_u64(a, hardware_word(groups));
    b = _mm_crc32_u64(b, hardware_word(groups + 8));
    c = _mm_crc32_u64(c, hardware_word(groups + 16));
    d = _mm_crc32_u64(d, hardware_word(groups + 24));
  }
  lanes[0] = static_cast<uint32_t>(a);
  lanes[1] = static_cast<uint32_t>(b);
  lanes[2] = static_cast<uint32_t>(c);
  lanes[3] = static_cast<uint32_t>(d);
}

bool has_sse42() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_2) != 0;
}

bool has_sha() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return has_sse42() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (b & bit_SHA) != 0;
}

}  // namespace

Sha256Blocks sha256_blocks_hardware() {
  return has_sha() ? sha256_blocks_x86 : nullptr;
}

Crc32cGroups crc32c_groups_hardware() {
  return has_sse42() ? crc32c_groups_x86 : nullptr;
}

#else

Sha256Blocks sha256_blocks_hardware() { return nullptr; }
Crc32cGroups crc32c_groups_hardware() { return nullptr; }

#endif

}  // namespace canzona

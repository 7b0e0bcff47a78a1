// SHA-256 with Intel's SHA extensions (Intel 64 manual, volume 2: SHA256RNDS2, SHA256MSG1, SHA256MSG2). They keep the
// state as {a,b,e,f} and {c,d,g,h} and do four rounds in two instructions.

#include "runtime/io/sha256_blocks.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

namespace graphpipe::runtime {
namespace {

#define GRAPHPIPE_SHA __attribute__((target("sha,sse4.1,ssse3")))

// Words 4i .. 4i+3 of the message schedule from the sixteen before them.
GRAPHPIPE_SHA __m128i next_sha_words(__m128i w0, __m128i w1, __m128i w2, __m128i w3) {
  const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
  return _mm_sha256msg2_epu32(sum, w3);
}

GRAPHPIPE_SHA void fold_sha_blocks(Sha256State& state, const unsigned char* data, size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i abcd = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data()));  // a lowest
  const __m128i efgh = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data() + 4));
  // Highest lane first: {a,b,e,f} and {c,d,g,h}.
  const __m128i badc = _mm_shuffle_epi32(abcd, 0xB1), hgfe = _mm_shuffle_epi32(efgh, 0x1B);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);
  for (; count > 0; --count, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * i)), big_endian);
    for (int four = 0; four < 16; ++four) {
      if (four >= 4) w[four % 4] = next_sha_words(w[four % 4], w[(four + 1) % 4], w[(four + 2) % 4], w[(four + 3) % 4]);
      const __m128i rounds = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kSha256Rounds + 4 * four));
      const __m128i words = _mm_add_epi32(w[four % 4], rounds);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool cpu_has_sha() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kSsse3 = 1U << 9, kSse41 = 1U << 19, kSha = 1U << 29;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSsse3) == 0 || (c & kSse41) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

#undef GRAPHPIPE_SHA

}  // namespace

Sha256Blocks sha256_blocks_of_cpu() { return cpu_has_sha() ? fold_sha_blocks : nullptr; }

}  // namespace graphpipe::runtime

#else

namespace graphpipe::runtime {

Sha256Blocks sha256_blocks_of_cpu() { return nullptr; }

}  // namespace graphpipe::runtime

#endif

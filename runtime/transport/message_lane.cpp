#include "runtime/transport/message_lane.h"

namespace graphpipe::runtime {
namespace {

/// A vector of floats that are added together, at any alignment: the compiler does not vectorise a loop over single
/// floats here. As wide as the registers of any processor: of wider ones it would make copies in memory.
using Lanes = float __attribute__((vector_size(16), aligned(4), may_alias));

}  // namespace

void add_floats(std::byte* sums, const std::byte* terms, size_t bytes) {
  size_t i = 0;
  for (; i + sizeof(Lanes) <= bytes; i += sizeof(Lanes))
    *reinterpret_cast<Lanes*>(sums + i) += *reinterpret_cast<const Lanes*>(terms + i);
  for (; i < bytes; i += sizeof(float))
    *reinterpret_cast<float*>(sums + i) += *reinterpret_cast<const float*>(terms + i);
}

}  // namespace graphpipe::runtime

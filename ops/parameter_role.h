#pragma once
// What a trained tensor is for.

#include <cstdint>

namespace graphpipe::ops {

/// kTable: looked up whole, as added or concatenated positions are. kConstant: nothing that is trained.
enum class ParameterRole : uint8_t { kWeight, kBias, kScale, kEmbedding, kTable, kStatistic, kConstant };

}  // namespace graphpipe::ops

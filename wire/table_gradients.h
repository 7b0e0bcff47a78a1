#pragma once
// When the gradient of a table is kept as the rows that were looked up (runtime/kernels/table_rows.h): the program and
// the count of its memory agree on it. std only.

#include <cstdint>

namespace graphpipe::wire {

/// A gradient of more than this part of the rows costs more than it saves.
inline constexpr int64_t kLargestPart = 4;

constexpr bool keeps_rows(int64_t look_ups, int64_t rows) { return look_ups * kLargestPart <= rows; }

}  // namespace graphpipe::wire

#pragma once

#include <cstdint>

namespace graphpipe {

/// Every integer up to here, and its negative, is a double, so that readers of JSON that know no other numbers read it
/// as it was written.
inline constexpr int64_t kMaxExactInteger = int64_t{1} << 53;

}  // namespace graphpipe

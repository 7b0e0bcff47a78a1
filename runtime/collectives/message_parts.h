#pragma once
// Messages to rank 0 that consist of length-prefixed parts.

#include <cstddef>
#include <optional>
#include <vector>

namespace graphpipe::runtime {

void add_part(std::vector<std::byte>& message, const std::vector<std::byte>& part);
/// The parts of a message, or nothing if it does not consist of exactly `count` parts.
std::optional<std::vector<std::vector<std::byte>>> parts_of(const std::vector<std::byte>& message, size_t count);

}  // namespace graphpipe::runtime

#include "runtime/collectives/message_parts.h"

#include <cstdint>

#include "runtime/collectives/gather.h"

namespace graphpipe::runtime {

void add_part(std::vector<std::byte>& message, const std::vector<std::byte>& part) {
  const std::vector<std::byte> size = to_bytes(std::vector<uint64_t>{part.size()});
  message.insert(message.end(), size.begin(), size.end());
  message.insert(message.end(), part.begin(), part.end());
}

std::optional<std::vector<std::vector<std::byte>>> parts_of(const std::vector<std::byte>& message, size_t count) {
  std::vector<std::vector<std::byte>> parts;
  auto next = message.begin();
  const auto left = [&] { return static_cast<uint64_t>(message.end() - next); };
  while (parts.size() < count && left() >= sizeof(uint64_t)) {
    const uint64_t size = from_bytes<uint64_t>({next, next + sizeof(uint64_t)}).front();
    next += sizeof(uint64_t);
    if (size > left()) return std::nullopt;
    parts.emplace_back(next, next + static_cast<std::ptrdiff_t>(size));
    next += static_cast<std::ptrdiff_t>(size);
  }
  if (parts.size() != count || next != message.end()) return std::nullopt;
  return parts;
}

}  // namespace graphpipe::runtime

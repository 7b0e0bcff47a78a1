#pragma once
// One end of a channel: the queue of messages, in order, and the progress of the front one. The byte stream underneath
// accepts or provides as many bytes as it can at a time.

#include <algorithm>
#include <deque>
#include <span>
#include <vector>

#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// What is added arrives in pieces of this size: small enough to stay in the nearest cache until it is added.
inline constexpr size_t kSumPiece = 64 << 10;

/// Adds each float at `terms` to that at `sums`, which is aligned.
void add_floats(std::byte* sums, const std::byte* terms, size_t bytes);

struct MessageLane {
  int32_t peer = -1;
  bool is_send = false;
  std::deque<Message*> queue;
  MessageHeader header;     // receives: header of the arriving message
  size_t header_bytes = 0;  // of the front message, moved so far
  size_t payload_bytes = 0;
  std::vector<std::byte>
      terms;  // for a message that adds: bytes received but not added yet; may begin with part of a float

  bool has_header() const { return header_bytes == sizeof(MessageHeader); }

  /// Removes the front message, once all of it has passed.
  Message* pop() {
    Message* message = queue.front();
    queue.pop_front();
    header_bytes = payload_bytes = 0;
    return message;
  }
};

struct Moved {
  bool any = false;       // at least one byte
  bool finished = false;  // all of the front message
};

/// Moves the front message of a sending lane; `write`(bytes) returns how many it has accepted.
template <typename Write>
Moved send_front(MessageLane& lane, Write&& write) {
  const Message& message = *lane.queue.front();
  Moved moved;
  if (!lane.has_header()) {
    const size_t count = write(std::as_bytes(std::span(&message.header, 1)).subspan(lane.header_bytes));
    lane.header_bytes += count;
    moved.any = count > 0;
  }
  const auto total = static_cast<size_t>(message.header.bytes);
  while (lane.has_header() && lane.payload_bytes < total) {
    const size_t count =
        write(std::span<const std::byte>(message.data + lane.payload_bytes, total - lane.payload_bytes));
    if (count == 0) break;
    lane.payload_bytes += count;
    moved.any = true;
  }
  moved.finished = lane.has_header() && lane.payload_bytes == total;
  return moved;
}

/// Adds what `read`(bytes) returns to the front message; returns how many bytes have arrived.
template <typename Read>
size_t receive_terms(MessageLane& lane, size_t total, Read&& read) {
  lane.terms.resize(kSumPiece);
  const size_t part = lane.payload_bytes % sizeof(float);
  const std::span<std::byte> place = std::span(lane.terms).subspan(part);
  const size_t count = read(place.first(std::min(place.size(), total - lane.payload_bytes)));
  const size_t whole = (part + count) / sizeof(float) * sizeof(float);
  add_floats(lane.queue.front()->data + lane.payload_bytes - part, lane.terms.data(), whole);
  std::copy_n(lane.terms.begin() + static_cast<std::ptrdiff_t>(whole), part + count - whole, lane.terms.begin());
  return count;
}

/// Moves the front message of a receiving lane; `read`(bytes) fills as many as have arrived and returns how many.
/// Throws RunError (kPeerFailed) if a message arrives that is not the expected one.
template <typename Read>
Moved receive_front(MessageLane& lane, Read&& read) {
  Message& message = *lane.queue.front();
  Moved moved;
  if (!lane.has_header()) {
    const size_t count = read(std::as_writable_bytes(std::span(&lane.header, 1)).subspan(lane.header_bytes));
    lane.header_bytes += count;
    moved.any = count > 0;
    if (!lane.has_header()) return moved;
    check_received(message, lane.header);
    message.header.arrives = lane.header.arrives;
    if (message.sink != nullptr) message.sink->resize(static_cast<size_t>(lane.header.bytes));
  }
  const auto total = static_cast<size_t>(lane.header.bytes);
  std::byte* data = message.sink != nullptr ? message.sink->data() : message.data;
  while (lane.payload_bytes < total) {
    const size_t count = message.adds
                             ? receive_terms(lane, total, read)
                             : read(std::span<std::byte>(data + lane.payload_bytes, total - lane.payload_bytes));
    if (count == 0) break;
    lane.payload_bytes += count;
    moved.any = true;
  }
  moved.finished = lane.payload_bytes == total;
  return moved;
}

}  // namespace graphpipe::runtime

#include "runtime/launch/frames.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "support/check.h"

namespace graphpipe::runtime {
namespace {

// On the wire: size of the body, MAC, body; the body is a kind and length-prefixed fields.
constexpr size_t kFrontBytes = sizeof(uint32_t) + sizeof(Sha256Digest);

void append_number(std::string& out, uint32_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

uint32_t number_at(std::string_view bytes, size_t place) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + place, sizeof number);
  return number;
}

std::string body_of(const Frame& frame) {
  std::string body(1, static_cast<char>(frame.kind));
  for (const std::string& field : frame.fields) {
    append_number(body, static_cast<uint32_t>(field.size()));
    body += field;
  }
  return body;
}

// None if the fields do not fill the body exactly.
std::optional<Frame> parse_body(std::string_view body) {
  if (body.empty()) return std::nullopt;
  Frame frame{.kind = static_cast<FrameKind>(body.front()), .fields = {}};
  for (size_t place = 1; place < body.size();) {
    if (body.size() - place < sizeof(uint32_t)) return std::nullopt;
    const uint32_t size = number_at(body, place);
    place += sizeof size;
    if (body.size() - place < size) return std::nullopt;
    frame.fields.emplace_back(body.substr(place, size));
    place += size;
  }
  return frame;
}

Sha256Digest frame_mac(const Key& session, FrameStream::Side sender, uint64_t number, std::string_view body) {
  const std::array<uint64_t, 2> place{static_cast<uint64_t>(sender), number};
  return hmac_sha256(session, {std::as_bytes(std::span(place)), std::as_bytes(std::span(body))});
}

FrameStream::Side other_side(FrameStream::Side side) {
  return side == FrameStream::Side::kRankZero ? FrameStream::Side::kOther : FrameStream::Side::kRankZero;
}

}  // namespace

FrameStream::FrameStream(Descriptor socket, const Key& session, Side side)
    : socket_(std::move(socket)), session_(session), side_(side) {}

void FrameStream::send(const Frame& frame) {
  const std::string body = body_of(frame);
  GP_CHECK(body.size() <= kMaxBytes);
  const Sha256Digest mac = frame_mac(session_, side_, frames_sent_++, body);
  append_number(outgoing_, static_cast<uint32_t>(body.size()));
  outgoing_.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  outgoing_ += body;
  flush();
}

void FrameStream::flush() {
  while (!over_ && unsent() > 0) {
    const ssize_t count = ::send(socket_.get(), outgoing_.data() + sent_, unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    // What the other end wrote before it closed is still unread: receive() finds the end of the stream.
    if (count < 0) break;
    sent_ += static_cast<size_t>(count);
  }
  outgoing_.clear();
  sent_ = 0;
}

bool FrameStream::read_some() {
  std::array<char, 16384> piece;
  while (true) {
    const ssize_t count = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count <= 0) {
      over_ = true;
      return false;
    }
    incoming_.erase(0, taken_);
    taken_ = 0;
    incoming_.append(piece.data(), static_cast<size_t>(count));
    return true;
  }
}

std::optional<Frame> FrameStream::receive() {
  while (!over_) {
    const std::string_view rest = std::string_view(incoming_).substr(taken_);
    const uint32_t size = rest.size() < kFrontBytes ? 0 : number_at(rest, 0);
    if (size > kMaxBytes) break;
    if (rest.size() < kFrontBytes || rest.size() - kFrontBytes < size) {
      if (!read_some()) return std::nullopt;
      continue;
    }
    const std::string_view mac = rest.substr(sizeof size, sizeof(Sha256Digest)), body = rest.substr(kFrontBytes, size);
    const Sha256Digest expected = frame_mac(session_, other_side(side_), frames_received_++, body);
    if (!equal_secretly(std::as_bytes(std::span(mac)), expected)) break;
    std::optional<Frame> frame = parse_body(body);
    if (!frame) break;
    taken_ += kFrontBytes + size;
    return frame;
  }
  over_ = true;
  return std::nullopt;
}

}  // namespace graphpipe::runtime

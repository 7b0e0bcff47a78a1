#pragma once
// Control messages between rank 0 and another rank, as frames over one connection. Each frame carries a MAC under the
// connection's session key over its direction, its number and its bytes: a frame that was modified, dropped, replayed
// or injected is detected, and ends the connection.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/secret.h"
#include "support/descriptor.h"

namespace graphpipe::runtime {

enum class FrameKind : uint8_t {
  kBeat,        // "I am alive"; empty
  kStarted,     // to rank 0: from here on it may stop sending beats
  kSet,         // to rank 0: key, value
  kGet,         // to rank 0: key
  kArrive,      // to rank 0: name of a barrier, count
  kValue,       // from rank 0: key, value
  kActivity,    // to rank 0: what the rank works on
  kActivities,  // from rank 0: those of all ranks
  kFailure,     // to rank 0: text; from rank 0: rank, text
  kLeave,       // the sender exits successfully
};

struct Frame {
  FrameKind kind = FrameKind::kBeat;
  std::vector<std::string> fields;
};

/// One end of a connection. Never waits.
class FrameStream {
 public:
  /// Larger frames are rejected.
  static constexpr uint32_t kMaxBytes = 8 << 20;
  enum class Side : uint8_t { kRankZero, kOther };

  FrameStream(Descriptor socket, const Key& session, Side side);
  /// Writes the frame as far as the socket takes it; flush() writes the rest.
  void send(const Frame& frame);
  void flush();
  /// Bytes that the socket has not accepted yet.
  size_t unsent() const { return outgoing_.size() - sent_; }
  /// The next complete frame; none if there is none yet, or the connection is over.
  std::optional<Frame> receive();
  /// The connection has ended, or its bytes are not what the other end sent.
  bool over() const { return over_; }
  int descriptor() const { return socket_.get(); }

 private:
  /// Reads what is available into incoming_; false if there is nothing.
  bool read_some();

  Descriptor socket_;
  Key session_;
  Side side_;
  uint64_t frames_sent_ = 0, frames_received_ = 0;
  std::string outgoing_, incoming_;
  size_t sent_ = 0, taken_ = 0;
  bool over_ = false;
};

}  // namespace graphpipe::runtime

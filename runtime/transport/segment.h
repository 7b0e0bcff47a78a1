#pragma once
// The shared memory of a rank: a block of words that all ranks read, then the rings that others write into. It is an
// anonymous file (memfd) that the other ranks open through /proc: it has no name in any folder, so nothing remains
// however the processes end. Its size is sealed. The file that a SegmentDescriptor names is mapped only if it is a
// memory file of this user and of this size: otherwise whoever wrote the SegmentDescriptor could have us change other
// bytes, or truncate the file.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/transport/channel.h"
#include "runtime/transport/ring.h"

namespace graphpipe::runtime {

enum class RankPhase : int32_t { kRunning = 0, kLeft = 1, kFailed = 2 };

struct RankWords {
  Doorbell doorbell;
  alignas(64) std::atomic<int32_t> phase;
  // The rank's Activity.
  std::atomic<int32_t> op, stage, replica, waits_for;
  std::atomic<int64_t> first, last, step, beats;
  /// Why the rank failed; written before `phase`.
  char problem[480];
};

/// Where one channel's ring lies in the segment of its receiver.
struct RingPlace {
  ChannelKey key;
  uint64_t offset = 0;
  uint64_t capacity = 0;
};

/// What a rank publishes about its segment.
struct SegmentDescriptor {
  int64_t pid = 0;
  int32_t fd = -1;
  uint64_t size = 0;
  std::vector<RingPlace> rings;
};
std::string print_segment(const SegmentDescriptor& segment);
SegmentDescriptor parse_segment(const std::string& text);

class Segment {
 public:
  /// Creates this rank's segment with one ring per incoming channel.
  static Segment make(const std::vector<ChannelSpec>& incoming, SegmentDescriptor& descriptor);
  /// Maps another rank's segment. Throws RunError: kEnvironment if it cannot be reached, kPeerFailed if it is not a
  /// segment of that size.
  static Segment open(const SegmentDescriptor& segment);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  RankWords& words() const { return *static_cast<RankWords*>(memory_); }
  Ring ring(const RingPlace& place) const {
    return Ring(static_cast<std::byte*>(memory_) + place.offset, place.capacity);
  }
  /// Closes the file of a segment that was created here, once all others have mapped it.
  void close_file();

 private:
  Segment(void* memory, uint64_t size, int fd) : memory_(memory), size_(size), fd_(fd) {}
  void* memory_ = nullptr;
  uint64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace graphpipe::runtime

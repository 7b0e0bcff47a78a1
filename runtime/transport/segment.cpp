#include "runtime/transport/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

// A ring holds two of its largest messages where that is not too much, so that a sender need not wait for a receiver
// that computes. Pages are touched only when bytes pass.
constexpr uint64_t kSmallestRing = 64 << 10;
constexpr uint64_t kLargestRing = 32 << 20;
constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

uint64_t ring_capacity(int64_t largest_bytes) {
  const uint64_t wanted = 2 * (std::min<uint64_t>(static_cast<uint64_t>(largest_bytes), kLargestRing) +
                               sizeof(MessageHeader));
  return std::clamp(std::bit_ceil(wanted), kSmallestRing, kLargestRing);
}

[[noreturn]] void cannot(const std::string& what) {
  fail(Code::kEnvironment, text("shared memory: cannot ", what, ": ", std::strerror(errno)),
       "run with --transport gloo, or let the ranks share one process-id namespace and user");
}

void* map(int fd, uint64_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) cannot("map a segment");
  return memory;
}

}  // namespace

std::string print_card(const SegmentCard& card) {
  std::ostringstream out;
  out << card.pid << ' ' << card.fd << ' ' << card.size << ' ' << card.rings.size();
  for (const RingPlace& ring : card.rings)
    out << ' ' << static_cast<int>(ring.key.kind) << ' ' << ring.key.index << ' ' << ring.key.from << ' ' << ring.key.to
        << ' ' << ring.offset << ' ' << ring.capacity;
  return std::move(out).str();
}

SegmentCard parse_card(const std::string& text) {
  std::istringstream in(text);
  SegmentCard card;
  size_t count = 0;
  in >> card.pid >> card.fd >> card.size >> count;
  for (size_t i = 0; i < count && in; ++i) {
    RingPlace ring;
    int kind = 0;
    in >> kind >> ring.key.index >> ring.key.from >> ring.key.to >> ring.offset >> ring.capacity;
    ring.key.kind = static_cast<ChannelKind>(kind);
    const bool has_words = ring.offset < card.size && card.size - ring.offset > sizeof(RingWords);
    const bool inside =
        has_words && ring.capacity > 0 && ring.capacity <= card.size - ring.offset - sizeof(RingWords);
    if (!inside) in.setstate(std::ios::failbit);
    card.rings.push_back(ring);
  }
  if (!in || card.size < sizeof(RankWords))
    fail(Code::kPeerFailed, "a rank published a malformed shared-memory card", "run all ranks from one folder");
  return card;
}

Segment Segment::make(const std::vector<ChannelSpec>& incoming, SegmentCard& card) {
  uint64_t size = round_up(sizeof(RankWords));
  for (const ChannelSpec& spec : incoming) {
    const uint64_t capacity = ring_capacity(spec.largest_bytes);
    card.rings.push_back({spec.key, size, capacity});
    size += round_up(sizeof(RingWords) + capacity);
  }
  const int fd = memfd_create("graphpipe", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) cannot("make a segment");
  card.pid = getpid();
  card.fd = fd;
  card.size = size;
  Segment segment(map(fd, size), size, fd);
  segment.words().waits_for = -1;
  segment.words().op = -1;
  return segment;
}

Segment Segment::open(const SegmentCard& card) {
  const std::string path = text("/proc/", card.pid, "/fd/", card.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) cannot("open the segment of process " + std::to_string(card.pid));
  void* memory = map(fd, card.size);
  close(fd);
  return Segment(memory, card.size, -1);
}

Segment::Segment(Segment&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), fd_(std::exchange(other.fd_, -1)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

Segment::~Segment() {
  if (memory_ != nullptr) munmap(memory_, size_);
  close_file();
}

void Segment::close_file() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace graphpipe::runtime

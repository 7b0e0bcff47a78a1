#include "runtime/transport/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "runtime/error.h"
#include "support/descriptor.h"
#include "support/memory_limit.h"

namespace graphpipe::runtime {
namespace {

// A ring holds two of its largest messages unless that is too much, so that a sender need not wait for a receiver that
// computes. Pages are touched only when bytes pass.
constexpr uint64_t kSmallestRing = 64 << 10;
constexpr uint64_t kLargestRing = 32 << 20;
constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

uint64_t ring_capacity(int64_t largest_bytes) {
  const uint64_t wanted =
      2 * (std::min<uint64_t>(static_cast<uint64_t>(largest_bytes), kLargestRing) + sizeof(MessageHeader));
  return std::clamp(std::bit_ceil(wanted), kSmallestRing, kLargestRing);
}

[[noreturn]] void cannot(const std::string& what) {
  const int why = errno;
  const bool no_descriptors = why == EMFILE || why == ENFILE;
  const std::string hint = why == EFBIG     ? "raise the limit of file sizes (ulimit -f), or run with --transport tcp"
                           : why == ENOMEM  ? memory_hint()
                           : no_descriptors ? "raise the limit of open files (ulimit -n)"
                                            : "run with --transport tcp, or let the ranks share one process-id "
                                              "namespace and user";
  fail(Code::kEnvironment, text("shared memory: cannot ", what, ": ", std::strerror(why)), hint);
}

[[noreturn]] void refuse_segment(const std::string& path, const char* why) {
  fail(Code::kPeerFailed, text("a rank names ", path, " as its shared memory, which ", why),
       "start all ranks again; if it happens again, somebody else takes part in this run");
}

// Nobody can shrink or grow the file, or remove these seals.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Does not open the file itself: opening a device or a FIFO has side effects.
Descriptor find_segment(const SegmentDescriptor& segment) {
  const std::string path = text("/proc/", segment.pid, "/fd/", segment.fd);
  const Descriptor named(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status {};
  if (!named || fstat(named.get(), &status) != 0) cannot("open the segment of process " + std::to_string(segment.pid));
  if (!S_ISREG(status.st_mode)) refuse_segment(path, "is not a file in memory");
  if (status.st_uid != geteuid()) refuse_segment(path, "belongs to another user");
  if (static_cast<uint64_t>(status.st_size) != segment.size) refuse_segment(path, "has another size");
  // The same file, even if the process reuses the descriptor number meanwhile.
  Descriptor file(::open(text("/proc/self/fd/", named.get()).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) cannot("open the segment of process " + std::to_string(segment.pid));
  // Only memory files have seals, and with them their size is fixed.
  if (fcntl(file.get(), F_GET_SEALS) != kSeals) refuse_segment(path, "is not sealed");
  return file;
}

void* map(int fd, uint64_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) cannot("map a segment");
  return memory;
}

}  // namespace

std::string print_segment(const SegmentDescriptor& segment) {
  std::ostringstream out;
  out << segment.pid << ' ' << segment.fd << ' ' << segment.size << ' ' << segment.rings.size();
  for (const RingPlace& ring : segment.rings)
    out << ' ' << static_cast<int>(ring.key.kind) << ' ' << ring.key.index << ' ' << ring.key.from << ' ' << ring.key.to
        << ' ' << ring.offset << ' ' << ring.capacity;
  return std::move(out).str();
}

SegmentDescriptor parse_segment(const std::string& text) {
  std::istringstream in(text);
  SegmentDescriptor segment;
  size_t count = 0;
  in >> segment.pid >> segment.fd >> segment.size >> count;
  for (size_t i = 0; i < count && in; ++i) {
    RingPlace ring;
    int kind = 0;
    in >> kind >> ring.key.index >> ring.key.from >> ring.key.to >> ring.offset >> ring.capacity;
    ring.key.kind = static_cast<ChannelKind>(kind);
    const bool has_words =
        ring.offset % kPage == 0 && ring.offset < segment.size && segment.size - ring.offset > sizeof(RingWords);
    const bool inside =
        has_words && ring.capacity > 0 && ring.capacity <= segment.size - ring.offset - sizeof(RingWords);
    if (!inside) in.setstate(std::ios::failbit);
    segment.rings.push_back(ring);
  }
  if (!in || segment.size < sizeof(RankWords))
    fail(Code::kPeerFailed, "a rank published a malformed shared-memory card", "run all ranks from one folder");
  return segment;
}

Segment Segment::make(const std::vector<ChannelSpec>& incoming, SegmentDescriptor& descriptor) {
  uint64_t size = round_up(sizeof(RankWords));
  for (const ChannelSpec& spec : incoming) {
    const uint64_t capacity = ring_capacity(spec.largest_bytes);
    descriptor.rings.push_back({spec.key, size, capacity});
    size += round_up(sizeof(RingWords) + capacity);
  }
  const int fd = memfd_create("graphpipe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0 || fcntl(fd, F_ADD_SEALS, kSeals) != 0)
    cannot("make a segment");
  descriptor.pid = getpid();
  descriptor.fd = fd;
  descriptor.size = size;
  Segment segment(map(fd, size), size, fd);
  segment.words().waits_for = -1;
  segment.words().op = -1;
  return segment;
}

Segment Segment::open(const SegmentDescriptor& segment) {
  return Segment(map(find_segment(segment).get(), segment.size), segment.size, -1);
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

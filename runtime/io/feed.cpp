#include "runtime/io/feed.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/error.h"
#include "runtime/io/stored_samples.h"
#include "support/descriptor.h"
#include "wire/feed_text.h"

namespace graphpipe::runtime {
namespace {

/// Read-only memory of a feeder: sealed, so that it cannot shrink while it is read.
class FeedMemory {
 public:
  FeedMemory(int descriptor, size_t size) : size_(size) {
    struct stat info {};
    const int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(descriptor, &info) != 0 ||
        static_cast<uint64_t>(info.st_size) < size)
      return;
    void* const mapped = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped != MAP_FAILED) data_ = static_cast<const std::byte*>(mapped);
  }
  FeedMemory(const FeedMemory&) = delete;
  FeedMemory& operator=(const FeedMemory&) = delete;
  ~FeedMemory() {
    if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  }
  const std::byte* data() const { return data_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_;
};

class FeedData : public Data {
 public:
  explicit FeedData(const FeedSetup& setup) : setup_(setup) {
    const auto layout = wire::feed_layout(setup.table, setup.batch);
    if (!layout || layout->back() == 0)
      fail(Code::kUsage, "the plan reads no data that a feeder could send", "leave --feed out");
    layout_ = *layout;
    connect_to_feeder();
  }

  bool has_step(int64_t step) override { return find_step(step); }
  void check_end(int64_t step) const override;
  int64_t samples_of(int64_t step) override {
    await_step(step);
    return setup_.batch;
  }
  int64_t steps_per_epoch() const override { return 1; }
  int64_t rest() const override { return setup_.batch; }
  std::string name() const override { return offer_.data; }
  at::Tensor item(const DataRow& row, int64_t step, wire::SampleRange range) override;

 private:
  [[noreturn]] void fail_feed(const std::string& what, const std::string& hint) const;
  void connect_to_feeder();
  void greet(int64_t step);
  /// Returns whether the feeder has a batch for it.
  bool find_step(int64_t step);
  void await_step(int64_t step);
  std::string receive(int64_t step, Descriptor* memory);
  void send_text(const std::string& message);

  FeedSetup setup_;
  std::vector<int64_t> layout_;
  Descriptor socket_;
  std::optional<FeedMemory> memory_;
  wire::FeedOffer offer_;
  int64_t step_ = -1;  // the step whose batch is held
  int64_t slot_ = 0;
  bool has_ended_ = false;
};

// All ranks lose the same feeder; only one of them tells the user.
void FeedData::fail_feed(const std::string& what, const std::string& hint) const {
  throw SharedRunError(Diagnostic{.code = Code::kPeerFailed,
                                  .severity = setup_.rank == 0 ? Severity::kError : Severity::kNote,
                                  .origin = ModelText(setup_.socket),
                                  .message = "the feeder " + what,
                                  .hint = hint});
}

void FeedData::connect_to_feeder() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto unreadable = [&](const std::string& why) {
    throw RunError(Diagnostic{.code = Code::kUnreadableFile,
                              .origin = ModelText(setup_.socket),
                              .message = "no feeder answers at this socket: " + why,
                              .hint = "start the feeder first, and pass its socket with --feed"});
  };
  if (setup_.socket.size() >= sizeof address.sun_path) unreadable("the path is too long for a Unix socket");
  std::memcpy(address.sun_path, setup_.socket.c_str(), setup_.socket.size());
  socket_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket_.get() < 0 || connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    unreadable(std::strerror(errno));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || (peer.uid != geteuid() && peer.uid != 0))
    fail_feed("belongs to another user", "take data from a feeder of your own");
}

void FeedData::greet(int64_t step) {
  send_text(
      wire::feed_hello({.ranks = setup_.ranks, .rank = setup_.rank, .step = step + 1}, setup_.table, setup_.batch));
  Descriptor memory;
  const std::optional<wire::FeedOffer> offer = wire::parse_feed_offer(receive(step, &memory));
  const std::string hint = "feed with graphpipe_feed.py of this version, or as docs/data-protocol.md says";
  if (!offer || memory.get() < 0) fail_feed("answers in another protocol than \"graphpipe-feed 1\"", hint);
  if (offer->slot_bytes < layout_.back())
    fail_feed(text("offers slots of ", offer->slot_bytes, " bytes, and a batch has ", layout_.back()), hint);
  int64_t all = 0;
  if (__builtin_mul_overflow(offer->slots, offer->slot_bytes, &all))
    fail_feed("offers more memory than there is", hint);
  memory_.emplace(memory.get(), static_cast<size_t>(all));
  if (memory_->data() == nullptr) fail_feed("offers memory that is not sealed against shrinking, or too small", hint);
  offer_ = *offer;
}

void FeedData::await_step(int64_t step) {
  if (!find_step(step)) check_end(step);
}

void FeedData::check_end(int64_t step) const {
  if (has_ended_)
    fail_feed(text("has no batch for step ", step + 1),
              "feed more batches, or lower --steps; with --checkpoint the steps before are kept, for --resume");
}

bool FeedData::find_step(int64_t step) {
  if (step == step_ || has_ended_) return !has_ended_;
  if (!memory_) greet(step);
  if (step_ >= 0) send_text(wire::feed_done(step_ + 1));
  const std::string message = receive(step, nullptr);
  has_ended_ = message == "end\n";
  if (has_ended_) return false;
  const std::optional<wire::FeedBatch> batch = wire::parse_feed_batch(message);
  if (!batch || batch->slot < 0 || batch->slot >= offer_.slots)
    fail_feed(text("breaks the protocol where the batch of step ", step + 1, " is due"), "see docs/data-protocol.md");
  if (batch->step != step + 1)
    fail_feed(text("sends the batch of step ", batch->step, " where that of step ", step + 1, " is due"),
              "feed from the step on that the hello names");
  step_ = step;
  slot_ = batch->slot;
  return true;
}

// The feeder's next message. `memory` receives the descriptor that comes with it.
std::string FeedData::receive(int64_t step, Descriptor* memory) {
  pollfd waits{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  do ready = poll(&waits, 1, static_cast<int>(setup_.patience_seconds * 1000));
  while (ready < 0 && errno == EINTR);
  if (ready == 0)
    fail_feed(text("has sent nothing for ", setup_.patience_seconds, " s, and step ", step + 1, " needs a batch"),
              "make it faster, or raise --stall-timeout, half of which it has");
  std::string message(wire::kMaxFeedMessage, '\0');
  iovec part{.iov_base = message.data(), .iov_len = message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  for (cmsghdr* note = CMSG_FIRSTHDR(&header); size >= 0 && note != nullptr; note = CMSG_NXTHDR(&header, note)) {
    if (note->cmsg_level != SOL_SOCKET || note->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(note), sizeof descriptor);
    Descriptor received(descriptor);
    if (memory != nullptr) *memory = std::move(received);
  }
  if (size <= 0)
    fail_feed(text("ended before it sent the batch of step ", step + 1),
              "look at its own messages, and start both again");
  message.resize(static_cast<size_t>(size));
  return message;
}

void FeedData::send_text(const std::string& message) {
  if (message.size() > wire::kMaxFeedMessage)
    fail(Code::kUsage, "the plan has more inputs than a feeder can be told of", "take --data");
  if (send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(message.size()))
    fail_feed("has ended", "look at its own messages, and start both again");
}

at::Tensor FeedData::item(const DataRow& row, int64_t step, wire::SampleRange range) {
  await_step(step);
  const auto entry = std::ranges::find(setup_.table.entries, std::string(row.name), &wire::DataEntry::name);
  const wire::DataEntry own = entry_of(row);
  if (entry == setup_.table.entries.end() || entry->type != own.type || entry->batch_axis != own.batch_axis ||
      entry->dims != own.dims)
    fail(Code::kMalformedFile, text("data.txt does not say what ", quoted(ModelText(row.name)), " is"),
         "generate the folder again");
  at::Tensor stored =
      at::empty(stored_dims(row, range.size()), at::TensorOptions().dtype(scalar_type(row.tensor.type)));
  const std::span<std::byte> to = bytes_in(stored);
  const size_t first = row.tensor.batch_axis < 0 || range.empty()
                           ? 0
                           : to.size() / static_cast<size_t>(range.size()) * static_cast<size_t>(range.first);
  const int64_t offset = layout_[static_cast<size_t>(entry - setup_.table.entries.begin())];
  const std::byte* from = memory_->data() + slot_ * offer_.slot_bytes + offset + first;
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
  // Check the copy: the feeder may write to its memory at any time.
  const wire::DataArray copy{
      .type = row.tensor.type,
      .dims = stored.sizes().vec(),
      .elements = to,
      .file = text(row.name, " of the batch of step ", step + 1, ", samples from ", range.first)};
  value_or_throw(wire::check_ids(own, copy, 0, range.size()));
  return row.tensor.batch_axis < 0 ? stored : batch_axis_in_place(std::move(stored), row);
}

}  // namespace

std::unique_ptr<Data> open_feed(const FeedSetup& setup) { return std::make_unique<FeedData>(setup); }

}  // namespace graphpipe::runtime

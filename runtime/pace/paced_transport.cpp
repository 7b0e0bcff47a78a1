#include "runtime/pace/paced_transport.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>

#include "runtime/error.h"
#include "support/descriptor.h"

namespace graphpipe::runtime {
namespace {

constexpr double kNanoseconds = 1e9;
constexpr const char* kClockKey = "pace/clock";

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * kNanoseconds + 0.5); }

[[noreturn]] void no_clock() {
  fail(Code::kEnvironment, text("the links' times cannot be shared: ", std::strerror(errno)),
       "run all ranks as one user of one host");
}

class PacedTransport final : public Transport {
 public:
  PacedTransport(std::unique_ptr<Transport> inner, std::vector<ChannelPace> paces, LinkClock& clock)
      : inner_(std::move(inner)), paces_(std::move(paces)), clock_(clock) {}

  const char* name() const override { return inner_->name(); }
  void post_send(size_t channel, Message& message) override;
  void post_receive(size_t channel, Message& message) override;
  void forget(const Message& message) override;
  bool progress() override;
  void wait(std::chrono::microseconds longest) override;
  void publish(const Activity& activity) override { inner_->publish(activity); }
  std::optional<Activity> activity_of(int32_t rank) const override { return inner_->activity_of(rank); }
  std::optional<int32_t> silent_relay(double seconds) const override { return inner_->silent_relay(seconds); }
  std::optional<PeerFailure> find_failure() override { return inner_->find_failure(); }
  void leave(const std::string& problem) override { inner_->leave(problem); }

 private:
  /// A receive posted to the inner transport in place of the original one.
  struct Landing {
    Message inner;
    Message* outer = nullptr;
  };

  std::unique_ptr<Transport> inner_;
  std::vector<ChannelPace> paces_;
  LinkClock& clock_;
  std::list<Landing> landings_;  // in the order of posting; their addresses are stable
};

void PacedTransport::post_send(size_t channel, Message& message) {
  const ChannelPace& pace = paces_[channel];
  if (pace.link >= 0) {
    const auto bytes = static_cast<double>(message.header.bytes);
    const int64_t end = clock_.occupy(pace.link, pace_now(), nanoseconds(bytes * pace.byte));
    message.header.arrives = end + nanoseconds(pace.latency + bytes * pace.work);
  }
  inner_->post_send(channel, message);
}

void PacedTransport::post_receive(size_t channel, Message& message) {
  if (paces_[channel].link < 0) return inner_->post_receive(channel, message);
  Landing& landing = landings_.emplace_back(Landing{.inner = message, .outer = &message});
  inner_->post_receive(channel, landing.inner);
}

void PacedTransport::forget(const Message& message) {
  inner_->forget(message);  // a send, or a receive that nothing stands for
  const auto landing = std::ranges::find(landings_, &message, &Landing::outer);
  if (landing == landings_.end()) return;
  if (!landing->inner.done) inner_->forget(landing->inner);
  landings_.erase(landing);
}

bool PacedTransport::progress() {
  bool moved = inner_->progress();
  const int64_t now = landings_.empty() ? 0 : pace_now();
  for (auto landing = landings_.begin(); landing != landings_.end();) {
    if (!landing->inner.done || landing->inner.header.arrives > now) {
      ++landing;
      continue;
    }
    landing->outer->done = true;
    landing = landings_.erase(landing);
    moved = true;
  }
  return moved;
}

void PacedTransport::wait(std::chrono::microseconds longest) {
  constexpr int64_t kPerMicrosecond = 1000;
  const int64_t now = pace_now();
  for (const Landing& landing : landings_)
    if (landing.inner.done)
      longest = std::min(longest, std::chrono::microseconds(
                                      std::max<int64_t>(0, landing.inner.header.arrives - now) / kPerMicrosecond + 1));
  inner_->wait(longest);
}

}  // namespace

int64_t pace_now() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

LinkClock::LinkClock(Store* store, int32_t rank, int32_t ranks, int32_t links)
    : size_(std::max<size_t>(1, static_cast<size_t>(links)) * sizeof(std::atomic<int64_t>)) {
  Descriptor file;
  if (rank == 0) {
    file = Descriptor(memfd_create("graphpipe-links", MFD_CLOEXEC));
    if (!file || ftruncate(file.get(), static_cast<off_t>(size_)) != 0) no_clock();
    if (store != nullptr) store->set(kClockKey, text("/proc/", getpid(), "/fd/", file.get()));
  } else {
    // The store belongs to the run: only its ranks write there.
    file = Descriptor(open(store->get(kClockKey).c_str(), O_RDWR | O_CLOEXEC));
    struct stat status {};
    if (!file || fstat(file.get(), &status) != 0 || static_cast<size_t>(status.st_size) != size_) no_clock();
  }
  memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory_ == MAP_FAILED) no_clock();
  if (store != nullptr) store->barrier("pace clock", ranks);
}

LinkClock::~LinkClock() { munmap(memory_, size_); }

int64_t LinkClock::occupy(int32_t link, int64_t now, int64_t length) {
  std::atomic<int64_t>& free = static_cast<std::atomic<int64_t>*>(memory_)[link];
  int64_t seen = free.load();
  while (!free.compare_exchange_weak(seen, std::max(seen, now) + length)) {
  }
  return std::max(seen, now) + length;
}

std::unique_ptr<Transport> pace_transport(std::unique_ptr<Transport> inner, std::vector<ChannelPace> paces,
                                          LinkClock& clock) {
  return std::make_unique<PacedTransport>(std::move(inner), std::move(paces), clock);
}

}  // namespace graphpipe::runtime

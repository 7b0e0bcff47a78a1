#include "runtime/launch/control.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "runtime/error.h"
#include "runtime/launch/sockets.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRunKey = "run";
constexpr std::chrono::milliseconds kLeaveTime{500};

std::string bytes_text(const auto& value) {
  static_assert(std::is_trivially_copyable_v<std::remove_cvref_t<decltype(value)>>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

class ControlClient final : public ControlPlane {
 public:
  ControlClient(int32_t rank, Introduced introduced, std::unique_ptr<ControlServer> server, const Key& key,
                ControlTimes times, double get_seconds);
  ~ControlClient() override;

  void set(const std::string& key, const std::string& value) override { send(FrameKind::kSet, {key, value}); }
  std::string get(const std::string& key) override;
  std::optional<std::string> find(const std::string& key) const override {
    GP_CHECK(server_);
    return server_->find(key);
  }
  void barrier(const std::string& name, int32_t count) override;
  void start_is_over() override { send(FrameKind::kStarted, {}); }
  void publish(const Activity& activity) override;
  std::optional<Activity> activity_of(int32_t rank) const override;
  std::optional<PeerFailure> find_failure() const override;
  bool rank_zero_has_left() const override;
  double silence_of_rank_zero() const override;
  void leave(const std::string& problem) override;
  const Key& channel_key() const override { return channel_key_; }
  const RunId& run() const override { return run_; }
  std::string own_address() const override { return own_address_; }
  std::string address_of_rank_zero() const override { return address_of_rank_zero_; }

  /// Rank 0 chooses the run's id, the others receive it.
  void name_run();

 private:
  void send(FrameKind kind, std::vector<std::string> fields);
  void read_frames();  // until the connection ends
  void wait_for_frames(bool unsent, double seconds) const;
  double seconds_between_beats() const { return shares_ ? std::min(times_.share, times_.beat) : times_.beat; }
  void handle(const Frame& frame);
  void tick();
  bool has_failed() const { return failure_ || frames_.over(); }
  [[noreturn]] void fail_waiting(const std::string& key) const;

  const int32_t rank_;
  const ControlTimes times_;
  const double get_seconds_;
  const Key key_;
  Key channel_key_{};
  RunId run_{};
  std::string own_address_, address_of_rank_zero_;

  mutable std::mutex mutex_;
  std::condition_variable news_;
  FrameStream frames_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> activities_;  // by rank
  Activity own_;
  bool shares_ = false, ends_ = false, rank_zero_left_ = false;
  std::optional<PeerFailure> failure_;
  double silent_ = 0, since_beat_ = 0;  // seconds
  Clock::time_point last_tick_ = Clock::now();
  Descriptor wake_;
  std::thread thread_;
  /// Rank 0 only: destroyed before rank 0's own connection, whose end would otherwise look like a lost rank.
  std::unique_ptr<ControlServer> server_;
};

ControlClient::ControlClient(int32_t rank, Introduced introduced, std::unique_ptr<ControlServer> server, const Key& key,
                             ControlTimes times, double get_seconds)
    : rank_(rank),
      times_(times),
      get_seconds_(get_seconds),
      key_(key),
      own_address_(address_of(introduced.socket.get(), End::kOwn)),
      address_of_rank_zero_(address_of(introduced.socket.get(), End::kOther)),
      frames_(std::move(introduced.socket), introduced.session, FrameStream::Side::kOther),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      server_(std::move(server)) {
  thread_ = std::thread([this] { read_frames(); });
}

ControlClient::~ControlClient() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void ControlClient::send(FrameKind kind, std::vector<std::string> fields) {
  const std::lock_guard lock(mutex_);
  frames_.send({.kind = kind, .fields = std::move(fields)});
  if (frames_.unsent() > 0) eventfd_write(wake_.get(), 1);
}

void ControlClient::read_frames() {
  for (std::unique_lock lock(mutex_); !ends_ && !frames_.over();) {
    const bool unsent = frames_.unsent() > 0;
    const double seconds = seconds_between_beats();
    lock.unlock();
    wait_for_frames(unsent, seconds);
    lock.lock();
    frames_.flush();
    while (const std::optional<Frame> frame = frames_.receive()) handle(*frame);
    tick();
    news_.notify_all();
  }
}

void ControlClient::wait_for_frames(bool unsent, double seconds) const {
  pollfd polled[2] = {
      {.fd = wake_.get(), .events = POLLIN, .revents = 0},
      {.fd = frames_.descriptor(), .events = static_cast<short>(POLLIN | (unsent ? POLLOUT : 0)), .revents = 0}};
  poll(polled, 2, static_cast<int>(1000 * seconds) + 1);
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
}

void ControlClient::handle(const Frame& frame) {
  silent_ = 0;
  const std::vector<std::string>& fields = frame.fields;
  if (frame.kind == FrameKind::kLeave) rank_zero_left_ = true;
  if (frame.kind == FrameKind::kActivities) activities_ = fields;
  if (fields.size() != 2) return;
  if (frame.kind == FrameKind::kValue) values_[fields[0]] = fields[1];
  int32_t rank = -1;
  if (frame.kind != FrameKind::kFailure || !read_number(fields[0], rank) || failure_) return;
  const std::string_view what = fields[1];
  failure_ = what.starts_with(kToldFailure) ? failure_told_by(rank, what.substr(kToldFailure.size()))
                                            : PeerFailure{.rank = rank, .what = fields[1], .last = std::nullopt};
}

void ControlClient::tick() {
  const Clock::time_point now = Clock::now();
  const double passed = std::chrono::duration<double>(now - last_tick_).count();
  last_tick_ = now;
  // As in ControlServer::watch_silence().
  silent_ += std::min(passed, 2 * times_.beat);
  since_beat_ += passed;
  if (since_beat_ < seconds_between_beats()) return;
  since_beat_ = 0;
  if (shares_) frames_.send({.kind = FrameKind::kActivity, .fields = {bytes_text(own_)}});
  else frames_.send({.kind = FrameKind::kBeat, .fields = {}});
}

std::string ControlClient::get(const std::string& key) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1000 * std::min(get_seconds_, 1e9)));
  std::unique_lock lock(mutex_);
  bool asked = false;
  while (true) {
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    const bool late = Clock::now() > deadline;
    if (has_failed() || late || silent_ > times_.silence) fail_waiting(key);
    if (!asked) frames_.send({.kind = FrameKind::kGet, .fields = {key}});
    asked = true;
    news_.wait_for(lock, std::chrono::milliseconds(100));
  }
}

void ControlClient::fail_waiting(const std::string& key) const {
  if (failure_ && failure_->rank != rank_) end_with_peer(*failure_, rank_);
  if (frames_.over())
    fail(Code::kPeerFailed, "rank 0 ended before the ranks had started",
         text("look at that rank's own message; it also closes the connection of a second process of rank ", rank_));
  if (silent_ > times_.silence)
    fail(Code::kPeerFailed, text("rank 0 gave no sign of life for ", times_.silence, " s before the ranks had started"),
         "see whether its process is stopped, and whether its host can be reached");
  fail(Code::kPeerFailed, "the ranks did not all come to '" + key + "'", "see which rank did not");
}

void ControlClient::barrier(const std::string& name, int32_t count) {
  send(FrameKind::kArrive, {name, std::to_string(count)});
  get("open/" + name);
}

void ControlClient::publish(const Activity& activity) {
  const std::lock_guard lock(mutex_);
  own_ = activity;
  if (std::exchange(shares_, true)) return;
  // Send the first one at once: all ranks know it once they have passed another barrier.
  frames_.send({.kind = FrameKind::kActivity, .fields = {bytes_text(own_)}});
  eventfd_write(wake_.get(), 1);
}

std::optional<Activity> ControlClient::activity_of(int32_t rank) const {
  const std::lock_guard lock(mutex_);
  if (rank == rank_) return own_;
  const auto index = static_cast<size_t>(rank);
  Activity activity;
  if (index >= activities_.size() || activities_[index].size() != sizeof activity) return std::nullopt;
  std::memcpy(&activity, activities_[index].data(), sizeof activity);
  return activity;
}

std::optional<PeerFailure> ControlClient::find_failure() const {
  const std::lock_guard lock(mutex_);
  if (failure_ && failure_->rank != rank_) return failure_;
  if (frames_.over() && !rank_zero_left_)
    return PeerFailure{.rank = 0, .what = "ended, or lost its connection", .last = std::nullopt};
  return std::nullopt;
}

bool ControlClient::rank_zero_has_left() const {
  const std::lock_guard lock(mutex_);
  return rank_zero_left_ || frames_.over() || (failure_ && failure_->rank == 0);
}

double ControlClient::silence_of_rank_zero() const {
  const std::lock_guard lock(mutex_);
  return silent_;
}

void ControlClient::leave(const std::string& problem) {
  if (problem.empty()) send(FrameKind::kLeave, {});
  else send(FrameKind::kFailure, {problem});
  // The echo confirms that rank 0 has told the others.
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, kLeaveTime,
                 [&] { return frames_.over() || (problem.empty() ? frames_.unsent() == 0 : failure_.has_value()); });
}

void ControlClient::name_run() {
  if (server_) {
    fill_random(run_);
    set(kRunKey, bytes_text(run_));
  }
  const std::string bytes = get(kRunKey);
  if (bytes.size() != run_.size()) fail(Code::kPeerFailed, "rank 0 names no run", "run all ranks from one folder");
  std::memcpy(run_.data(), bytes.data(), run_.size());
  constexpr std::string_view kUse = "channel";
  channel_key_ = hmac_sha256(key_, {std::as_bytes(std::span(kUse)), run_});
}

}  // namespace

void end_with_peer(const PeerFailure& failure, int32_t own_rank) {
  throw RunError(Diagnostic{.code = Code::kPeerFailed,
                            .severity = severity_for(failure, own_rank),
                            .message = text("rank ", failure.rank, " ", failure.what),
                            .hint = "look at that rank's own message"});
}

std::unique_ptr<ControlPlane> open_control(int32_t rank, Introduced introduced, std::unique_ptr<ControlServer> server,
                                           const Key& key, ControlTimes times, double get_seconds) {
  auto control =
      std::make_unique<ControlClient>(rank, std::move(introduced), std::move(server), key, times, get_seconds);
  control->name_run();
  return control;
}

}  // namespace graphpipe::runtime

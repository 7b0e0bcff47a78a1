#include "runtime/launch/control_server.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "support/text.h"

namespace graphpipe::runtime {
namespace {

// A rank that does not read (because it is stopped) is sent no more activity updates beyond this.
constexpr size_t kMaxUnsentNews = 1 << 16;
constexpr std::chrono::seconds kTimeToLeave{2};
constexpr int kLookWhileLeaving = 10;  // milliseconds

}  // namespace

std::string key_of_left_rank(size_t rank) { return text("left/", rank); }

ControlServer::ControlServer(std::vector<Descriptor> inherited, Descriptor listener, const Key& key, ControlTimes times)
    : members_(inherited.size()), key_(key), times_(times) {
  for (size_t rank = 0; rank < inherited.size(); ++rank)
    if (inherited[rank]) members_[rank].answerer.emplace(std::move(inherited[rank]));
  if (listener) acceptor_.emplace(std::move(listener), key_, Hello::Purpose::kControl, RunId{});
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) wake_read_ = Descriptor(ends[0]), wake_write_ = Descriptor(ends[1]);
  thread_ = std::thread([this] { run(); });
}

ControlServer::~ControlServer() {
  wake_write_ = {};  // closing the pipe tells the thread to end
  thread_.join();
}

void ControlServer::run() {
  try {
    serve();
  } catch (const std::exception&) {
    members_.clear();  // out of memory: the others find their connections closed
  }
}

void ControlServer::serve() {
  std::optional<Clock::time_point> deadline;  // set once rank 0 ends
  while (!deadline || (!others_left() && Clock::now() < *deadline)) {
    wait_for_news(deadline.has_value());
    char none = 0;
    if (!deadline && ::read(wake_read_.get(), &none, 1) == 0) deadline = Clock::now() + kTimeToLeave;
    meet_inherited();
    accept_ranks();
    for (size_t rank = 0; rank < members_.size(); ++rank) read(rank);
    tick();
  }
  for (Member& member : members_)
    if (member.frames) member.frames->send({.kind = FrameKind::kLeave, .fields = {}});
}

void ControlServer::wait_for_news(bool ending) {
  // A closed pipe stays readable, so poll() would spin.
  std::vector<pollfd> polled{{.fd = ending ? -1 : wake_read_.get(), .events = POLLIN, .revents = 0}};
  if (acceptor_) acceptor_->add_to(polled);
  for (const Member& member : members_) {
    if (member.answerer) polled.push_back({.fd = member.answerer->descriptor(), .events = POLLIN, .revents = 0});
    if (!member.frames) continue;
    const bool unsent = member.frames->unsent() > 0;
    polled.push_back({.fd = member.frames->descriptor(),
                      .events = static_cast<short>(POLLIN | (unsent ? POLLOUT : 0)),
                      .revents = 0});
  }
  poll(polled.data(), polled.size(), ending ? kLookWhileLeaving : static_cast<int>(1000 * seconds_to_news()) + 1);
}

void ControlServer::meet_inherited() {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    std::optional<Answerer>& answerer = members_[rank].answerer;
    if (!answerer) continue;
    const Answerer::State state = answerer->step(key_, Hello::Purpose::kControl, {});
    if (state == Answerer::State::kWaits) continue;
    if (state == Answerer::State::kDone) join(rank, answerer->take(key_));
    else fail_run(rank, "ended before it joined the run");
    answerer.reset();
  }
}

void ControlServer::accept_ranks() {
  if (!acceptor_) return;
  for (Introduced& introduced : acceptor_->step()) {
    const size_t rank = introduced.hello.rank;
    // A second process with the same rank is disconnected when its socket is destroyed.
    if (rank < members_.size() && !members_[rank].frames) join(rank, std::move(introduced));
  }
  if (all_there()) acceptor_.reset();
}

bool ControlServer::all_there() const {
  return std::ranges::all_of(members_, [](const Member& member) { return member.frames || member.left; });
}

bool ControlServer::others_left() const {
  return std::all_of(members_.begin() + 1, members_.end(), [&](const Member& member) { return member.left; });
}

void ControlServer::join(size_t rank, Introduced introduced) {
  Member& member = members_[rank];
  member.frames.emplace(std::move(introduced.socket), introduced.session, FrameStream::Side::kRankZero);
  member.silent = 0;
  if (failure_) tell_failure(rank);
}

void ControlServer::read(size_t rank) {
  Member& member = members_[rank];
  if (!member.frames) return;
  member.frames->flush();
  while (const std::optional<Frame> frame = member.frames->receive()) {
    member.silent = 0;
    handle(rank, *frame);
  }
  if (member.frames->over()) lose(rank);
}

void ControlServer::handle(size_t rank, const Frame& frame) {
  Member& member = members_[rank];
  const std::vector<std::string>& fields = frame.fields;
  const auto has = [&](size_t count) { return fields.size() == count; };
  if (frame.kind == FrameKind::kStarted) member.started = true;
  if (frame.kind == FrameKind::kLeave) note_left(rank);
  if (frame.kind == FrameKind::kActivity && has(1)) member.activity = fields[0], has_news_ = true;
  if (frame.kind == FrameKind::kFailure && has(1)) fail_run(rank, text(kToldFailure, fields[0]));
  if (frame.kind == FrameKind::kSet && has(2)) set(fields[0], fields[1]);
  if (frame.kind == FrameKind::kArrive && has(2)) handle_arrival(fields[0], fields[1]);
  if (frame.kind != FrameKind::kGet || !has(1)) return;
  const auto found = values_.find(fields[0]);
  if (found == values_.end()) waiting_[fields[0]].push_back(rank);
  else member.frames->send({.kind = FrameKind::kValue, .fields = {found->first, found->second}});
}

void ControlServer::handle_arrival(const std::string& name, const std::string& count) {
  if (text(++arrivals_[name]) == count) set("open/" + name, "");
}

void ControlServer::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard lock(values_mutex_);
    values_[key] = value;
  }
  const auto waiting = waiting_.extract(key);
  if (waiting.empty()) return;
  for (size_t rank : waiting.mapped())
    if (members_[rank].frames) members_[rank].frames->send({.kind = FrameKind::kValue, .fields = {key, value}});
}

void ControlServer::lose(size_t rank) {
  members_[rank].frames.reset();
  if (!members_[rank].left) fail_run(rank, "ended, or lost its connection");
  note_left(rank);
}

void ControlServer::note_left(size_t rank) {
  members_[rank].left = true;
  set(key_of_left_rank(rank), "");
}

std::optional<std::string> ControlServer::find(const std::string& key) const {
  const std::lock_guard lock(values_mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

void ControlServer::fail_run(size_t rank, const std::string& what) {
  if (failure_) return;
  failure_ = Frame{.kind = FrameKind::kFailure, .fields = {text(rank), what}};
  for (size_t other = members_.size(); other-- > 0;) tell_failure(other);
}

void ControlServer::tell_failure(size_t rank) {
  if (members_[rank].frames) members_[rank].frames->send(*failure_);
}

double ControlServer::seconds_to_news() const {
  // All ranks are told about all ranks, so the traffic grows with the square of their number.
  const double share = std::max(times_.share, 0.002 * static_cast<double>(members_.size()));
  return std::max(0.0, (has_news_ ? std::min(share, times_.beat) : times_.beat) - since_news_);
}

void ControlServer::tick() {
  const Clock::time_point now = Clock::now();
  const double passed = std::chrono::duration<double>(now - last_tick_).count();
  last_tick_ = now;
  watch_silence(passed);
  since_news_ += passed;
  if (seconds_to_news() > 0) return;
  since_news_ = 0;
  has_news_ = false;
  Frame news{.kind = FrameKind::kActivities, .fields = {}};
  for (const Member& member : members_) news.fields.push_back(member.activity);
  for (Member& member : members_)
    if (member.frames && member.frames->unsent() < kMaxUnsentNews) member.frames->send(news);
}

void ControlServer::watch_silence(double passed) {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    Member& member = members_[rank];
    if (member.left || member.started) continue;
    // The time between two looks counts only up to a limit: a process that was stopped could not hear anybody
    // meanwhile.
    member.silent += std::min(passed, 2 * times_.beat);
    if (!member.frames && member.silent > times_.join) fail_run(rank, text("did not start within ", times_.join, " s"));
    if (member.frames && member.silent > times_.silence)
      fail_run(rank, text("gave no sign of life for ", times_.silence, " s before the ranks had started"));
  }
}

}  // namespace graphpipe::runtime

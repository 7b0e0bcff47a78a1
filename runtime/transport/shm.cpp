// Shared-memory rings between the ranks of one host. A send immediately copies into its receiver's ring, as far as
// there is room; the receiver copies out when its compute thread polls. Large messages stream through in pieces, so
// that both copies run at the same time. Dead peers are detected through their pidfd.

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/error.h"
#include "runtime/transport/message_lane.h"
#include "runtime/transport/segment.h"
#include "runtime/transport/transports.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr size_t kPiece = 64 << 10;
constexpr microseconds kDeathCheck{20'000};

struct Peer {
  Segment segment;
  int pidfd = -1;
  bool used = false;  // has a channel with this rank
};

struct Lane : MessageLane {
  Ring ring;
};

class Shm final : public Transport {
 public:
  explicit Shm(const TransportSetup& setup);
  ~Shm() override;
  const char* name() const override { return "shm"; }
  void post_send(size_t channel, Message& message) override { post(channel, message); }
  void post_receive(size_t channel, Message& message) override { post(channel, message); }
  bool progress() override;
  void wait(microseconds longest) override;
  void publish(const Activity& activity) override;
  std::optional<Activity> activity_of(int32_t rank) const override;
  Doorbell* doorbell() override { return &own_.words().doorbell; }
  std::optional<PeerFailure> find_failure() override;
  void leave(const std::string& problem) override;

 private:
  void post(size_t channel, Message& message);
  bool move(Lane& lane);
  Moved move_send(Lane& lane);
  RankWords& words_of(int32_t rank) const { return peers_[static_cast<size_t>(rank)]->segment.words(); }

  int32_t rank_;
  bool may_spin_;
  Segment own_;
  std::vector<std::optional<Peer>> peers_;  // by rank; empty for this one and those of other hosts
  std::vector<Lane> lanes_;                 // by channel
  std::vector<size_t> active_;              // lanes with messages
  Clock::time_point next_death_check_{};
};

std::vector<ChannelSpec> incoming(const TransportSetup& setup) {
  std::vector<ChannelSpec> specs;
  for (const ChannelSpec& spec : setup.channels)
    if (spec.to_rank == setup.rank) specs.push_back(spec);
  return specs;
}

std::vector<int32_t> sharing_ranks(const TransportSetup& setup) {
  if (!setup.sharing.empty()) return setup.sharing;
  std::vector<int32_t> all(static_cast<size_t>(setup.world_size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Segment make_own(const TransportSetup& setup) {
  SegmentDescriptor segment;
  Segment own = Segment::make(incoming(setup), segment);
  setup.store->set(text("shm/", setup.rank), print_segment(segment));
  return own;
}

RingPlace place_in(const SegmentDescriptor& segment, const ChannelSpec& spec) {
  for (const RingPlace& place : segment.rings)
    if (place.key == spec.key) return place;
  fail(Code::kPeerFailed,
       text("rank ", spec.to_rank, " does not expect the channel ", channel_kind_name(spec.key.kind), " ",
            spec.key.index, " (", spec.key.from, " to ", spec.key.to, ")"),
       "make sure that all ranks run programs of one generated folder");
}

Shm::Shm(const TransportSetup& setup)
    : rank_(setup.rank),
      may_spin_(setup.may_spin),
      own_(make_own(setup)),
      peers_(static_cast<size_t>(setup.world_size)) {
  std::vector<SegmentDescriptor> segments(peers_.size());
  const std::vector<int32_t> sharing = sharing_ranks(setup);
  for (int32_t rank : sharing) {
    const auto index = static_cast<size_t>(rank);
    segments[index] = parse_segment(setup.store->get(text("shm/", rank)));
    if (rank == rank_) continue;
    peers_[index].emplace(Peer{.segment = Segment::open(segments[index])});
    peers_[index]->pidfd = static_cast<int>(syscall(SYS_pidfd_open, segments[index].pid, 0));
  }
  const SegmentDescriptor& own_segment = segments[static_cast<size_t>(rank_)];
  for (const ChannelSpec& spec : setup.channels) {
    const bool is_send = spec.from_rank == rank_;
    const int32_t other = is_send ? spec.to_rank : spec.from_rank;
    GP_CHECK(peers_[static_cast<size_t>(other)].has_value());
    const Segment& where = is_send ? peers_[static_cast<size_t>(other)]->segment : own_;
    const RingPlace place = place_in(is_send ? segments[static_cast<size_t>(other)] : own_segment, spec);
    lanes_.push_back(Lane{{.peer = other, .is_send = is_send}, where.ring(place)});
    peers_[static_cast<size_t>(other)]->used = true;
  }
  setup.store->barrier(text("shm/", sharing.front()), static_cast<int32_t>(sharing.size()));
  own_.close_file();
}

Shm::~Shm() {
  for (const std::optional<Peer>& peer : peers_)
    if (peer && peer->pidfd >= 0) close(peer->pidfd);
}

void Shm::post(size_t channel, Message& message) {
  Lane& lane = lanes_[channel];
  if (lane.queue.empty()) active_.push_back(channel);
  lane.queue.push_back(&message);
  if (lane.is_send && lane.queue.size() == 1) move(lane);
}

Moved Shm::move_send(Lane& lane) {
  bool copied = false;
  return send_front(lane, [&](std::span<const std::byte> bytes) {
    // The receiver may copy the last piece while we copy the next.
    if (copied) words_of(lane.peer).doorbell.ring();
    const bool payload = lane.has_header();
    const size_t count = lane.ring.write(bytes, kPiece);
    copied = payload && count > 0;
    return count;
  });
}

bool Shm::move(Lane& lane) {
  bool moved_any = false;
  while (!lane.queue.empty()) {
    const auto read = [&](std::span<std::byte> bytes) { return lane.ring.read(bytes, kPiece); };
    const Moved moved = lane.is_send ? move_send(lane) : receive_front(lane, read);
    moved_any |= moved.any || moved.finished;
    if (!moved.finished) break;
    lane.pop()->done = true;
  }
  if (moved_any) words_of(lane.peer).doorbell.ring();
  return moved_any;
}

bool Shm::progress() {
  bool moved = false;
  for (size_t channel : active_) moved |= move(lanes_[channel]);
  std::erase_if(active_, [&](size_t channel) { return lanes_[channel].queue.empty(); });
  return moved;
}

void Shm::wait(microseconds longest) {
  Doorbell& bell = own_.words().doorbell;
  const uint32_t seen = bell.rings.load();
  if (!progress()) bell.wait(seen, std::min(longest, kDeathCheck), may_spin_);
}

void Shm::publish(const Activity& activity) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  RankWords& words = own_.words();
  words.op.store(activity.op, kRelaxed);
  words.stage.store(activity.stage, kRelaxed);
  words.replica.store(activity.replica, kRelaxed);
  words.first.store(activity.range.first, kRelaxed);
  words.last.store(activity.range.last, kRelaxed);
  words.step.store(activity.step, kRelaxed);
  words.waits_for.store(activity.waits_for, kRelaxed);
  words.beats.store(activity.beats, kRelaxed);
}

std::optional<Activity> Shm::activity_of(int32_t rank) const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  if (rank != rank_ && !peers_[static_cast<size_t>(rank)]) return std::nullopt;
  const RankWords& words = rank == rank_ ? own_.words() : words_of(rank);
  return Activity{.op = words.op.load(kRelaxed),
                  .stage = words.stage.load(kRelaxed),
                  .replica = words.replica.load(kRelaxed),
                  .range = {words.first.load(kRelaxed), words.last.load(kRelaxed)},
                  .step = words.step.load(kRelaxed),
                  .waits_for = words.waits_for.load(kRelaxed),
                  .beats = words.beats.load(kRelaxed)};
}

std::optional<PeerFailure> Shm::find_failure() {
  const Clock::time_point now = Clock::now();
  if (now < next_death_check_) return std::nullopt;
  next_death_check_ = now + kDeathCheck;
  for (int32_t rank = 0; rank < static_cast<int32_t>(peers_.size()); ++rank) {
    const std::optional<Peer>& peer = peers_[static_cast<size_t>(rank)];
    if (!peer) continue;
    const RankWords& words = peer->segment.words();
    const auto phase = static_cast<RankPhase>(words.phase.load(std::memory_order_acquire));
    if (phase == RankPhase::kFailed) {
      PeerFailure failure = failure_told_by(rank, words.problem);
      failure.last = activity_of(rank);
      return failure;
    }
    pollfd event{.fd = peer->pidfd, .events = POLLIN, .revents = 0};
    const bool dead = peer->pidfd >= 0 && poll(&event, 1, 0) == 1;
    // A rank that has left has sent all that it owes; it may be gone before we have read it.
    if (dead && static_cast<RankPhase>(words.phase.load(std::memory_order_acquire)) == RankPhase::kRunning)
      return PeerFailure{.rank = rank, .what = "died", .last = activity_of(rank)};
  }
  return std::nullopt;
}

void Shm::leave(const std::string& problem) {
  RankWords& words = own_.words();
  std::strncpy(words.problem, problem.c_str(), sizeof words.problem - 1);
  words.phase.store(static_cast<int32_t>(problem.empty() ? RankPhase::kLeft : RankPhase::kFailed),
                    std::memory_order_release);
  for (const std::optional<Peer>& peer : peers_)
    if (peer) peer->segment.words().doorbell.ring();
}

}  // namespace

std::unique_ptr<Transport> open_shm(const TransportSetup& setup) { return std::make_unique<Shm>(setup); }

}  // namespace graphpipe::runtime

#include "runtime/executor/channels.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <thread>

#include "runtime/error.h"
#include "runtime/executor/resolve.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

ElementType element_type_of(at::ScalarType type) {
  for (int i = 0; i < static_cast<int>(std::size(wire::kElementTypes)); ++i)
    if (scalar_type(static_cast<ElementType>(i)) == type) return static_cast<ElementType>(i);
  fail(Code::kUnsupportedType, text("tensors of type ", c10::toString(type), " do not cross between stages"),
       "generate the folder again");
}

uint64_t digest_prefix(const char* hex) {
  uint64_t value = 0;
  if (hex != nullptr) std::from_chars(hex, hex + std::min<size_t>(16, std::strlen(hex)), value, 16);
  return value;
}

}  // namespace

std::vector<ChannelSpec> remote_channels(const std::vector<ChannelSpec>& specs) {
  std::vector<ChannelSpec> out;
  for (const ChannelSpec& spec : specs)
    if (spec.from_rank != spec.to_rank) out.push_back(spec);
  return out;
}

Channels::Channels(const PlanTable& plan, int32_t rank, const std::vector<ChannelSpec>& specs,
                   std::unique_ptr<Transport> remote, double stall_seconds, DeviceCopy device_copy)
    : plan_(plan),
      rank_(rank),
      digest_(digest_prefix(plan.plan_digest)),
      stall_seconds_(stall_seconds),
      remote_(std::move(remote)) {
  TransportSetup local{.device_copy = std::move(device_copy)};
  size_t remote_count = 0;
  for (const ChannelSpec& spec : specs) {
    const bool is_local = spec.from_rank == spec.to_rank;
    const int32_t peer = spec.from_rank == rank ? spec.to_rank : spec.from_rank;
    ends_[spec.key] = {is_local, is_local ? local.channels.size() : remote_count++, peer};
    if (is_local) local.channels.push_back(spec);
  }
  GP_CHECK(remote_count == 0 || remote_ != nullptr);
  loopback_ = open_loopback(local);
}

MessageHeader Channels::header(const ChannelKey& key, const at::Tensor& tensor, int64_t step, wire::SampleRange range,
                               int32_t part) const {
  MessageHeader header{.plan = digest_, .key = key, .part = part, .step = step, .range = range};
  if (!tensor.defined()) return header;
  header.type = element_type_of(tensor.scalar_type());
  header.rank = static_cast<uint32_t>(tensor.dim());
  header.bytes = static_cast<int64_t>(tensor.nbytes());
  for (int64_t i = 0; i < std::min<int64_t>(tensor.dim(), MessageHeader::kMaxDims); ++i)
    header.dims[i] = tensor.size(i);
  return header;
}

void Channels::post(PendingMessage& pending, const ChannelKey& key, bool is_send) {
  const auto found = ends_.find(key);
  GP_CHECK(found != ends_.end());
  pending.peer = found->second.peer;
  pending.posted = true;
  pending.message.done = false;
  Transport& transport = found->second.local ? *loopback_ : *remote_;
  pending.transport = &transport;
  if (is_send) transport.post_send(found->second.index, pending.message);
  else transport.post_receive(found->second.index, pending.message);
}

void Channels::send(PendingMessage& pending, const ChannelKey& key, at::Tensor tensor, int64_t step,
                    wire::SampleRange range, int32_t part) {
  GP_CHECK(pending.done());
  pending.message = {.header = header(key, tensor, step, range, part), .data = address_of(tensor)};
  pending.tensor = std::move(tensor);
  count_sent(key, pending.message.header.bytes);
  post(pending, key, true);
}

void Channels::count_sent(const ChannelKey& key, int64_t bytes) {
  const auto end = ends_.find(key);
  if (end == ends_.end() || end->second.local || !carries_tensors(key.kind)) return;
  StagePlace place{key.index, key.from};  // kReduce, kWeights
  if (key.kind == ChannelKind::kForward) place.first = plan_.edges[static_cast<size_t>(key.index)].from;
  if (key.kind == ChannelKind::kBackward) place.first = plan_.edges[static_cast<size_t>(key.index)].to;
  if (key.kind == ChannelKind::kShare) {
    const PlacementRow& row = plan_.placement[static_cast<size_t>(key.from)];
    place = {row.stage, row.replica};
  }
  sent_bytes_[place] += bytes;
}

void Channels::receive(PendingMessage& pending, const ChannelKey& key, at::Tensor tensor, int64_t step,
                       wire::SampleRange range, int32_t part, bool adds) {
  GP_CHECK(pending.done());
  pending.message = {.header = header(key, tensor, step, range, part), .data = address_of(tensor), .adds = adds};
  pending.tensor = std::move(tensor);
  post(pending, key, false);
}

void Channels::send_bytes(PendingMessage& pending, const ChannelKey& key, std::vector<std::byte>& bytes) {
  GP_CHECK(pending.done());
  pending.message = {.header = header(key, {}, 0, {}, 0), .data = bytes.data()};
  pending.message.header.bytes = static_cast<int64_t>(bytes.size());
  post(pending, key, true);
}

void Channels::receive_bytes(PendingMessage& pending, const ChannelKey& key, std::vector<std::byte>& sink) {
  GP_CHECK(pending.done());
  pending.message = {.header = header(key, {}, 0, {}, 0), .sink = &sink};
  post(pending, key, false);
}

bool Channels::takes_device_memory(const ChannelKey& key) const {
  const auto found = ends_.find(key);
  if (found == ends_.end()) return false;
  return (found->second.local ? *loopback_ : *remote_).takes_device_memory(key.kind);
}

bool Channels::moves_alone(const ChannelKey& key) const {
  const auto found = ends_.find(key);
  return found != ends_.end() && !found->second.local && remote_->moves_alone(found->second.index);
}

bool Channels::progress() {
  const bool local = loopback_->progress();
  return (remote_ && remote_->progress()) || local;
}

void Channels::wait_until(const std::function<bool()>& ready, const std::function<int32_t()>& peer,
                          const std::function<void()>& after_progress) {
  if (ready()) return;
  beat(peer());
  StallWatch watch(stall_seconds_, rank_, plan_.device_count, [this](int32_t rank) { return activity_of(rank); });
  const auto longest = std::chrono::microseconds(static_cast<int64_t>(std::min(stall_seconds_ / 8, 0.1) * 1e6));
  while (true) {
    const bool moved = progress();
    if (after_progress) after_progress();
    if (ready()) break;
    if (moved || loopback_->progress()) {
      watch.restart();
      continue;
    }
    // A message from a rank to itself is delivered as soon as both ends are posted.
    if (!remote_) report_stall({.culprit = rank_, .last = std::nullopt});
    check_failure();
    if (const std::optional<Stall> stall = watch.look(peer())) report_stall(known_stall(*stall));
    beat(peer());
    remote_->wait(longest);
  }
  activity_.waits_for = -1;
  if (remote_) remote_->publish(activity_);
}

void Channels::wait_for(const PendingMessage& pending) {
  wait_until([&] { return pending.done(); }, [&] { return pending.peer; });
}

void Channels::wait_for_own_work(const std::function<bool()>& ready) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(1);
  while (!ready()) {
    beat(rank_);  // stall_watch.h: it waits for itself
    if (!progress()) std::this_thread::sleep_for(kBetweenLooks);
    check_failure();
  }
  activity_.waits_for = -1;
  if (remote_) remote_->publish(activity_);
}

void Channels::pause_until(std::chrono::steady_clock::time_point end, const std::function<void()>& after_progress) {
  constexpr auto kBetweenLooks = std::chrono::microseconds(20'000);
  for (auto now = std::chrono::steady_clock::now(); now < end; now = std::chrono::steady_clock::now()) {
    const bool moved = progress();
    if (after_progress) after_progress();
    if (moved) continue;
    beat(rank_);  // stall_watch.h: it waits for itself
    check_failure();
    const auto left = std::chrono::ceil<std::chrono::microseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    if (remote_) remote_->wait(std::min(left, kBetweenLooks));
    else std::this_thread::sleep_for(left);
  }
  activity_.waits_for = -1;
  if (remote_) remote_->publish(activity_);
}

void Channels::publish(const wire::ActionRow& row, int64_t step) {
  activity_ = {.op = static_cast<int32_t>(row.op),
               .stage = row.stage,
               .replica = row.replica,
               .range = row.range,
               .step = step,
               .waits_for = -1,
               .beats = activity_.beats};
  if (remote_) remote_->publish(activity_);
}

void Channels::leave(const std::string& problem) {
  if (remote_) remote_->leave(problem);
}

std::string Channels::activity_text(const Activity& activity) const {
  if (activity.op < 0 || activity.op >= wire::kActionOpCount) return "before its first action";
  const wire::ActionRow row{.op = static_cast<wire::ActionOp>(activity.op),
                            .stage = activity.stage,
                            .replica = activity.replica,
                            .range = activity.range};
  return text("at ", describe(plan_, row), ", step ", activity.step + 1);
}

std::string Channels::rank_text(int32_t rank) const {
  if (rank == plan_.server) return text("rank ", rank, " (parameter server)");
  std::string stages;
  for (const PlacementRow& row : plan_.placement)
    if (row.device == rank) stages += text(stages.empty() ? "" : ", ", row.stage);
  return text("rank ", rank, " (stage ", stages, ")");
}

void Channels::check_failure() {
  if (!remote_) return;
  const std::optional<PeerFailure> failure = remote_->find_failure();
  if (!failure) return;
  std::string message = text(rank_text(failure->rank), " ", failure->what);
  const std::optional<Activity> last = failure->last ? failure->last : activity_of(failure->rank);
  if (last) message += text(" (it was ", activity_text(*last), ")");
  // The failed rank has already reported what went wrong: for the others it is not an error of their own.
  throw RunError(Diagnostic{.code = Code::kPeerFailed,
                            .severity = severity_for(*failure, rank_),
                            .message = message + text("; ", rank_text(rank_), " was ", activity_text(activity_)),
                            .hint = "look at that rank's own message and at the memory of its host"});
}

void Channels::beat(int32_t peer) {
  activity_.waits_for = peer;
  ++activity_.beats;
  if (remote_) remote_->publish(activity_);
}

std::optional<Activity> Channels::activity_of(int32_t rank) const {
  return remote_ ? remote_->activity_of(rank) : std::nullopt;
}

// While the rank that relays activity is silent, all ranks look stalled.
Stall Channels::known_stall(const Stall& stall) const {
  const std::optional<int32_t> relay = remote_->silent_relay(stall_seconds_ / 2);
  if (!relay || *relay == rank_) return stall;
  return {.culprit = *relay, .last = activity_of(*relay)};
}

void Channels::report_stall(const Stall& stall) const {
  std::string message;
  if (stall.culprit == rank_) message = text("the ranks wait for each other; ", rank_text(rank_));
  else
    message =
        text(rank_text(stall.culprit), " made no progress for ", stall_seconds_, " s",
             stall.last ? text(" (it is ", activity_text(*stall.last), ")") : std::string(), "; ", rank_text(rank_));
  fail(Code::kPeerFailed, message + " waits " + activity_text(activity_),
       "raise --stall-timeout where an action takes longer, else look at that rank");
}

}  // namespace graphpipe::runtime

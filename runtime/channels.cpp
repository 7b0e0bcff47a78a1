#include "runtime/channels.h"

#include <charconv>
#include <cstring>

#include "runtime/error.h"
#include "runtime/resolve.h"
#include "runtime/tensors.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

using Clock = std::chrono::steady_clock;

ElementType element_type_of(at::ScalarType type) {
  for (int i = 0; i <= static_cast<int>(ElementType::kBool); ++i)
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
                   std::unique_ptr<Transport> remote, double stall_seconds)
    : plan_(plan), rank_(rank), digest_(digest_prefix(plan.plan_digest)), stall_seconds_(stall_seconds),
      remote_(std::move(remote)) {
  TransportSetup local;
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
  for (int64_t i = 0; i < std::min<int64_t>(tensor.dim(), MessageHeader::kMaxDims); ++i) header.dims[i] = tensor.size(i);
  return header;
}

void Channels::post(Parcel& parcel, const ChannelKey& key, bool is_send) {
  const auto found = ends_.find(key);
  GP_CHECK(found != ends_.end());
  parcel.peer = found->second.peer;
  parcel.posted = true;
  parcel.message.done = false;
  Transport& transport = found->second.local ? *loopback_ : *remote_;
  if (is_send) transport.post_send(found->second.index, parcel.message);
  else transport.post_receive(found->second.index, parcel.message);
}

void Channels::send(Parcel& parcel, const ChannelKey& key, at::Tensor tensor, int64_t step, wire::SampleRange range,
                    int32_t part) {
  GP_CHECK(parcel.done());
  parcel.message = {.header = header(key, tensor, step, range, part), .data = address_of(tensor)};
  parcel.tensor = std::move(tensor);
  post(parcel, key, true);
}

void Channels::receive(Parcel& parcel, const ChannelKey& key, at::Tensor tensor, int64_t step, wire::SampleRange range,
                       int32_t part) {
  GP_CHECK(parcel.done());
  parcel.message = {.header = header(key, tensor, step, range, part), .data = address_of(tensor)};
  parcel.tensor = std::move(tensor);
  post(parcel, key, false);
}

void Channels::send_bytes(Parcel& parcel, const ChannelKey& key, std::vector<std::byte>& bytes) {
  GP_CHECK(parcel.done());
  parcel.message = {.header = header(key, {}, 0, {}, 0), .data = bytes.data()};
  parcel.message.header.bytes = static_cast<int64_t>(bytes.size());
  post(parcel, key, true);
}

void Channels::receive_bytes(Parcel& parcel, const ChannelKey& key, std::vector<std::byte>& sink) {
  GP_CHECK(parcel.done());
  parcel.message = {.header = header(key, {}, 0, {}, 0), .sink = &sink};
  post(parcel, key, false);
}

bool Channels::takes_device_memory(const ChannelKey& key) const {
  const auto found = ends_.find(key);
  return remote_ && found != ends_.end() && !found->second.local && remote_->takes_device_memory(key.kind);
}

bool Channels::progress() {
  const bool local = loopback_->progress();
  return (remote_ && remote_->progress()) || local;
}

void Channels::wait_until(const std::function<bool()>& ready, const std::function<int32_t()>& peer,
                          const std::function<void()>& after_progress) {
  if (ready()) return;
  beat(peer());
  Clock::time_point last_progress = Clock::now();
  std::vector<int64_t> beats;  // at half of the stall time-out
  const auto longest = std::chrono::microseconds(static_cast<int64_t>(std::min(stall_seconds_ / 8, 0.1) * 1e6));
  while (true) {
    const bool moved = progress();
    if (after_progress) after_progress();
    if (ready()) break;
    const Clock::time_point now = Clock::now();
    if (moved) {
      last_progress = now;
      beats.clear();
      continue;
    }
    check_failure();
    const double still = std::chrono::duration<double>(now - last_progress).count();
    if (beats.empty() && still > stall_seconds_ / 2) beats = beats_of_all();
    if (!remote_ || still > stall_seconds_) report_stall(remote_ ? peer() : rank_, beats);
    beat(peer());
    remote_->wait(longest);
  }
  activity_.waits_for = -1;
  if (remote_) remote_->publish(activity_);
}

void Channels::wait_for(const Parcel& parcel) {
  wait_until([&] { return parcel.done(); }, [&] { return parcel.peer; });
}

void Channels::publish(const wire::ActionRow& row, int64_t step) {
  activity_ = {.op = static_cast<int32_t>(row.op), .stage = row.stage, .replica = row.replica, .range = row.range,
               .step = step, .waits_for = -1, .beats = activity_.beats};
  if (remote_) remote_->publish(activity_);
}

void Channels::leave(const std::string& problem) {
  if (remote_) remote_->leave(problem);
}

std::string Channels::activity_text(const Activity& activity) const {
  if (activity.op < 0 || activity.op >= wire::kActionOpCount) return "before its first action";
  const wire::ActionRow row{.op = static_cast<wire::ActionOp>(activity.op), .stage = activity.stage,
                            .replica = activity.replica, .range = activity.range};
  return text("at ", describe(plan_, row), ", step ", activity.step);
}

std::string Channels::rank_text(int32_t rank) const {
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
  if (failure->last) message += text(" (it was ", activity_text(*failure->last), ")");
  fail(Code::kPeerFailed, message + text("; ", rank_text(rank_), " was ", activity_text(activity_)),
       "look at that rank's own message and at the memory of its host");
}

void Channels::beat(int32_t peer) {
  activity_.waits_for = peer;
  ++activity_.beats;
  if (remote_) remote_->publish(activity_);
}

std::vector<int64_t> Channels::beats_of_all() const {
  std::vector<int64_t> beats(static_cast<size_t>(plan_.device_count), -1);
  for (int32_t rank = 0; remote_ && rank < plan_.device_count; ++rank)
    if (const std::optional<Activity> activity = remote_->activity_of(rank)) beats[rank] = activity->beats;
  return beats;
}

void Channels::report_stall(int32_t peer, const std::vector<int64_t>& beats) {
  // Who waits for somebody else is not to blame: follow the chain to the rank that waits for nobody, or that was
  // stopped in its wait (what it waits for may have come since).
  int32_t culprit = peer;
  std::optional<Activity> last;
  for (int32_t hop = 0; remote_ && hop <= plan_.device_count && culprit >= 0 && culprit != rank_; ++hop) {
    last = remote_->activity_of(culprit);
    const bool stopped = last && static_cast<size_t>(culprit) < beats.size() && beats[culprit] == last->beats;
    if (!last || last->waits_for < 0 || stopped) break;
    culprit = last->waits_for;
  }
  std::string message;
  if (culprit == rank_) message = text("the ranks wait for each other; ", rank_text(rank_));
  else message = text(rank_text(culprit), " made no progress for ", stall_seconds_, " s",
                      last ? text(" (it is ", activity_text(*last), ")") : std::string(), "; ", rank_text(rank_));
  fail(Code::kPeerFailed, message + " waits " + activity_text(activity_),
       "raise --stall-timeout where an action takes longer, else look at that rank");
}

}  // namespace graphpipe::runtime

#include "partitioner/pipedream/fewest_devices.h"

#include <algorithm>
#include <cmath>

namespace graphpipe::partitioner {

namespace {

/// What rounding may add, relatively, to a time that is divided by the bottleneck.
constexpr double kFewestRounding = 1e-11;

}  // namespace

int FewestDevices::needed(double seconds) const {
  const double replicas = std::ceil(seconds * inverse_);
  return static_cast<int>(std::clamp(replicas, 1.0, static_cast<double>(limits_.devices) + 1));
}

void FewestDevices::append(size_t set, int used) {
  Bucket& bucket = buckets_[static_cast<size_t>(used)];
  bucket.seconds.push_back(sets_.seconds(set));
  bucket.set.push_back(static_cast<uint32_t>(set));
  bucket.traffic_replicas.push_back(traffic_replicas_[set]);
  const uint64_t* words = sets_.sets()[set];
  bucket.words.insert(bucket.words.end(), words, words + sets_.sets().width());
}

void FewestDevices::start(double max_seconds) {
  max_seconds_ = max_seconds;
  inverse_ = 1 / (max_seconds * (1 + kFewestRounding));
  ended_ = false;
  steps_.assign(sets_.size(), {});
  traffic_replicas_.assign(sets_.size(), 1);
  buckets_.assign(static_cast<size_t>(limits_.devices) + 1, {});
  append(0, 0);
}

// The stages from all downsets that take `used` devices, smallest stages first.
void FewestDevices::try_bucket(size_t to, int used) {
  const Bucket& bucket = buckets_[static_cast<size_t>(used)];
  const size_t width = sets_.sets().width();
  const uint64_t* words = sets_.sets()[to];
  const double seconds = sets_.seconds(to);
  Step& best = steps_[to];
  // The most devices, and with them the most work, that the stage may take to improve on the best step.
  const int allowed = limits_.replication ? limits_.devices : 1;
  int largest = std::min(best.used - 1 - used, allowed);
  double earliest = seconds - largest * max_seconds_ * (1 + kFewestRounding);
  size_t i = bucket.seconds.size();
  for (; i > 0 && bucket.seconds[i - 1] >= earliest && largest > 0; --i) {
    const size_t from = bucket.set[i - 1];
    const int traffic = from == 0 ? 1 : std::max(bucket.traffic_replicas[i - 1], traffic_replicas_[to]);
    if (traffic > largest || !is_subset(bucket.words.data() + (i - 1) * width, words, width)) continue;
    ++pairs_;
    for (int d = std::max(needed(seconds - bucket.seconds[i - 1]), traffic); d <= largest; ++d) {
      if (stage_seconds(sets_, limits_, from, to, d) > max_seconds_) continue;
      best = {.from = static_cast<uint32_t>(from), .replicas = d, .used = used + d};
      largest = std::min(d - 1, allowed);
      earliest = seconds - largest * max_seconds_ * (1 + kFewestRounding);
      break;
    }
  }
  checks_ += static_cast<int64_t>(bucket.seconds.size() - i);
}

void FewestDevices::reach(size_t to) {
  const size_t last = sets_.size() - 1;
  const int max_used = to == last ? limits_.devices : limits_.devices - needed(sets_.seconds(to, last));
  steps_[to].used = max_used + 1;
  if (to != last) traffic_replicas_[to] = needed(2 * sets_.leaving(to) / limits_.bandwidth);
  if (traffic_replicas_[to] > (limits_.replication ? limits_.devices : 1)) return;
  const int min_used = needed(sets_.seconds(to));
  for (int used = 0; used + 1 < steps_[to].used && steps_[to].used > min_used; ++used) try_bucket(to, used);
  if (steps_[to].used <= max_used) append(to, steps_[to].used);
}

std::optional<FoundPipeline> FewestDevices::within(double max_seconds) {
  start(max_seconds);
  for (size_t to = 1; to < sets_.size(); ++to) {
    if (to % 64 == 0 && (checks_ > limits_.max_pairs || deadline_.passed())) {
      ended_ = true;
      return std::nullopt;
    }
    reach(to);
  }
  size_t to = sets_.size() - 1;
  if (steps_[to].used > limits_.devices) return std::nullopt;
  FoundPipeline pipeline;
  for (; to != 0; to = steps_[to].from) {
    pipeline.stages.push_back({steps_[to].from, to, steps_[to].replicas});
    pipeline.seconds =
        std::max(pipeline.seconds, stage_seconds(sets_, limits_, steps_[to].from, to, steps_[to].replicas));
  }
  std::ranges::reverse(pipeline.stages);
  return pipeline;
}

}  // namespace graphpipe::partitioner

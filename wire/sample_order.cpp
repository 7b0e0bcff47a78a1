#include "wire/sample_order.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "support/check.h"
#include "support/splitmix64.h"

namespace graphpipe::wire {
namespace {

constexpr int kRoundsPerBit = 6;

__extension__ typedef __int128 Wide;  // a step times a batch may need more than 64 bits
__extension__ typedef unsigned __int128 UnsignedWide;

}  // namespace

Permutation::Permutation(int64_t size, uint64_t key) : size_(static_cast<uint64_t>(size)) {
  const int rounds = kRoundsPerBit * std::bit_width(size_ - 1);
  for (int i = 0; i < rounds; ++i) {
    const uint64_t of_round = splitmix64(key + static_cast<uint64_t>(i));
    const auto offset = static_cast<uint64_t>((static_cast<UnsignedWide>(splitmix64(of_round)) * size_) >> 64);
    rounds_.push_back({of_round, offset});
  }
}

int64_t Permutation::at(int64_t place) const {
  auto now = static_cast<uint64_t>(place);
  for (const Round& round : rounds_) {
    // A place and its partner either both stay or change places; a bit that both see says which.
    const uint64_t partner = round.offset >= now ? round.offset - now : round.offset + (size_ - now);
    if ((splitmix64(round.key ^ std::max(now, partner)) & 1) != 0) now = partner;
  }
  return static_cast<int64_t>(now);
}

SampleOrder::SampleOrder(int64_t samples, int64_t batch, const OrderRule& rule)
    : samples_(samples), batch_(batch), rule_(rule) {
  GP_CHECK(samples >= 1 && batch >= 1 && (rule.last_batch != LastBatch::kDrop || samples >= batch));
}

int64_t SampleOrder::rest() const {
  const int64_t left = samples_ % batch_;
  return rule_.last_batch == LastBatch::kTrain && left != 0 ? left : batch_;
}

int64_t SampleOrder::steps_per_epoch() const {
  const bool counts_rest = rule_.last_batch != LastBatch::kDrop && samples_ % batch_ != 0;
  return samples_ / batch_ + (counts_rest ? 1 : 0);
}

int64_t SampleOrder::steps(int64_t epochs) const {
  const Wide steps = rule_.last_batch == LastBatch::kWrap ? (Wide{epochs} * samples_ + batch_ - 1) / batch_
                                                          : Wide{epochs} * steps_per_epoch();
  return steps <= (Wide{1} << 62) ? static_cast<int64_t>(steps) : -1;
}

double SampleOrder::batches_in(int64_t first, int64_t last) const {
  // Each epoch that ends between them has a batch that is no whole one.
  const int64_t epochs = last / steps_per_epoch() - first / steps_per_epoch();
  const double missing = static_cast<double>(batch_ - rest()) / static_cast<double>(batch_);
  return static_cast<double>(last - first) - static_cast<double>(epochs) * missing;
}

int64_t SampleOrder::samples_of(int64_t step) const {
  const bool is_last = step % steps_per_epoch() == steps_per_epoch() - 1;
  return is_last ? rest() : batch_;
}

std::vector<int64_t> SampleOrder::rows(int64_t step, SampleRange range) const {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(range.size()));
  const bool wraps = rule_.last_batch == LastBatch::kWrap;
  int64_t epoch = 0, visit = 0;
  if (wraps) {
    const Wide visited = Wide{step} * batch_ + range.first;
    epoch = static_cast<int64_t>(visited / samples_);
    visit = static_cast<int64_t>(visited % samples_);
  } else {
    epoch = step / steps_per_epoch();
    visit = (step % steps_per_epoch() * batch_ + range.first) % samples_;
  }
  std::optional<Permutation> permutation;
  for (int64_t place = range.first; place < range.last; ++place, ++visit) {
    if (visit == samples_) {
      visit = 0;
      if (wraps) {
        ++epoch;
        permutation.reset();
      }
    }
    if (rule_.shuffle && !permutation)
      permutation.emplace(samples_, splitmix64(splitmix64(rule_.seed) ^ static_cast<uint64_t>(epoch)));
    rows.push_back(permutation ? permutation->at(visit) : visit);
  }
  return rows;
}

}  // namespace graphpipe::wire

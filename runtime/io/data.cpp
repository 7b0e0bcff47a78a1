#include "runtime/io/data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/error.h"
#include "runtime/io/stored_samples.h"
#include "runtime/step_samples.h"
#include "runtime/tensors.h"
#include "support/check.h"
#include "support/splitmix64.h"
#include "support/text.h"

namespace graphpipe::runtime {
namespace {

double uniform(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

double normal(uint64_t key) {  // Box and Muller 1958
  return std::sqrt(-2 * std::log(uniform(splitmix64(key)))) *
         std::cos(2 * std::numbers::pi * uniform(splitmix64(~key)));
}

class Synthetic : public Data {
 public:
  Synthetic(int64_t batch, uint64_t seed) : batch_(batch), seed_(seed) {}

  int64_t samples_of(int64_t) override { return batch_; }
  int64_t steps_per_epoch() const override { return 1; }
  int64_t rest() const override { return batch_; }
  // All steps have the same samples. They are drawn once, since drawing may take longer than a step, and kept as bytes,
  // since tensors would count as memory of the training.
  at::Tensor item(const DataRow& row, int64_t, wire::SampleRange range) override {
    std::vector<std::byte>& kept = kept_[{row.name, range.first, range.size()}];
    if (kept.empty()) {
      const at::Tensor drawn = draw(row, range);
      const std::span<const std::byte> bytes = bytes_in(drawn);
      kept.assign(bytes.begin(), bytes.end());
    }
    const at::Tensor values =
        at::empty(stored_dims(row, range.size()), at::TensorOptions().dtype(scalar_type(row.tensor.type)));
    std::ranges::copy(kept, bytes_in(values).begin());
    return batch_axis_in_place(values, row);
  }

 private:
  at::Tensor draw(const DataRow& row, wire::SampleRange range) const {
    const bool is_float = c10::isFloatingType(scalar_type(row.tensor.type));
    at::Tensor values =
        at::empty(stored_dims(row, range.size()), at::TensorOptions().dtype(is_float ? at::kDouble : at::kLong));
    uint64_t key = splitmix64(seed_);
    for (const char* c = row.name; *c != '\0'; ++c) key = splitmix64(key ^ static_cast<unsigned char>(*c));
    const bool whole = row.tensor.batch_axis < 0;
    const uint64_t limit = row.ids.bounded() && row.ids.high > 0 ? static_cast<uint64_t>(row.ids.high) : 2;
    const int64_t samples = whole ? 1 : range.size();
    const int64_t per_sample = samples == 0 ? 0 : values.numel() / samples;
    for (int64_t i = 0; i < samples * per_sample; ++i) {
      const auto sample = static_cast<uint64_t>(whole ? 0 : range.first + i / per_sample);
      const uint64_t bits = splitmix64(splitmix64(key ^ sample) + static_cast<uint64_t>(i % per_sample));
      if (is_float) values.mutable_data_ptr<double>()[i] = normal(bits);
      else values.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(bits % limit);
    }
    return values.to(scalar_type(row.tensor.type));
  }

  int64_t batch_;
  uint64_t seed_;
  std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<std::byte>> kept_;  // by name, first, count
};

int64_t count_equal(const at::Tensor& labels, int64_t number) {
  if (labels.scalar_type() != at::kLong || !labels.is_contiguous()) return labels.eq(number).sum().item<int64_t>();
  const int64_t* const first = labels.const_data_ptr<int64_t>();
  return std::count(first, first + labels.numel(), number);
}

// Needs: the labels of `samples` samples.
int64_t counted_positions(const LossRow& loss, const at::Tensor& labels, int64_t samples) {
  const auto count = [&](const at::Tensor& part) {
    return loss.has_ignore_index ? part.numel() - count_equal(part, loss.ignore_index) : part.numel();
  };
  if (loss.counted.empty()) return count(labels);
  const at::Tensor rows = labels.movedim(loss.label.tensor.batch_axis, 0).reshape({samples, -1});
  int64_t counted = 0;
  for (const wire::PositionRange& range : loss.counted)
    counted += count(rows.narrow(1, range.first, range.last - range.first));
  return counted;
}

}  // namespace

std::unique_ptr<Data> synthetic_data(int64_t batch, uint64_t seed) { return std::make_unique<Synthetic>(batch, seed); }

double loss_divisor(const LossRow& loss, Data& data, int64_t step, wire::SampleRange update) {
  switch (loss.normalizer) {
    case LossRow::Normalizer::kOne:
      return 1;
    case LossRow::Normalizer::kSamples:
      return static_cast<double>(update.size()) * static_cast<double>(loss.elements_per_sample);
    case LossRow::Normalizer::kCountedPositions:
      break;
  }
  GP_CHECK(loss.label.name != nullptr);
  const at::Tensor labels = data.item(loss.label, step, update);
  const int64_t counted = counted_positions(loss, labels, update.size());
  return static_cast<double>(counted) * static_cast<double>(loss.elements_per_sample);
}

LossScales::LossScales(const PlanTable& plan, Data& data, int64_t first_step, int64_t steps)
    : is_sum_(plan.loss.normalizer == LossRow::Normalizer::kOne), totals_(static_cast<size_t>(steps), 0) {
  std::vector<wire::SampleRange> all(plan.loss_updates.begin(), plan.loss_updates.end());
  for (int64_t i = 0; plan.loss_updates.empty() && i < steps; ++i)
    all.push_back({i * plan.batch, (i + 1) * plan.batch});
  for (const wire::SampleRange& update : all) {
    const int64_t before = steps_before(plan, update);
    if (before >= steps) continue;
    const int64_t step = first_step + before;
    const wire::SampleRange own = wire::intersect(within_step(plan, update), {0, data.samples_of(step)});
    divisors_.emplace_back();
    updates_.push_back({before * plan.batch + own.first, before * plan.batch + own.last});
    step_of_.push_back(static_cast<size_t>(before));
    add_divisor(plan.loss, data, step, own);
    for (const LossRow& term : plan.loss.terms) add_divisor(term, data, step, own);
  }
}

void LossScales::add_divisor(const LossRow& loss, Data& data, int64_t step, wire::SampleRange update) {
  const double divisor = loss_divisor(loss, data, step, update);
  const bool is_term = !divisors_.back().empty();
  if (divisor == 0 && undefined_.empty())
    undefined_ = text("all labels", is_term ? text(" ", quoted(ModelText(loss.label.name))) : "", " of samples [",
                      update.first, ",", update.last, ") of step ", step + 1, " are ", loss.ignore_index,
                      " and do not count, so their loss is undefined");
  divisors_.back().push_back(divisor == 0 ? 1 : divisor);
  if (!is_term) totals_[step_of_.back()] += divisor;
}

size_t LossScales::update_of(wire::SampleRange item) const {
  size_t i = 0;
  while (i < updates_.size() && wire::intersect(item, updates_[i]) != item) ++i;
  GP_CHECK(i < updates_.size());
  return i;
}

const std::vector<double>& LossScales::divisors(wire::SampleRange item) const { return divisors_[update_of(item)]; }

double LossScales::share(wire::SampleRange item) const {
  if (is_sum_) return 1;  // the updates of a step add up
  const size_t update = update_of(item);
  const bool is_whole_step = std::ranges::count(step_of_, step_of_[update]) == 1;
  return is_whole_step ? 1 : divisors_[update].front() / totals_[step_of_[update]];
}

double update_factor(const PlanTable& plan, wire::SampleRange update) {
  double covered = 0;  // updates of the loss
  for (const wire::SampleRange& of_loss : plan.loss_updates)
    covered += static_cast<double>(wire::intersect(update, of_loss).size()) / static_cast<double>(of_loss.size());
  return covered > 0 ? 1 / covered : 1;
}

}  // namespace graphpipe::runtime

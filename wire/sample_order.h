#pragma once
// Which samples a step takes: a pure function of the number of samples, the batch, the rule below and the step, counted
// from 0 over the whole training. It knows nothing of stages, devices and transports, so every plan trains on the same
// samples in the same order, and a run that goes on at a later step needs no other state.
//
// Epoch e visits the samples in the order of a permutation that (seed, e) names, or in their own order. A batch that
// does not divide their number leaves a rest at the end of an epoch:
//   wrap   the next epoch follows without a gap: the step that reaches the end goes on with samples of that epoch
//   drop   the rest is left out
//   pad    a last step takes the rest, and fills its batch with the first samples of the same epoch
//   train  a last step takes the rest alone

#include <cstdint>
#include <vector>

#include "support/result.h"
#include "wire/action.h"

namespace graphpipe::wire {

enum class LastBatch : uint8_t { kWrap, kDrop, kPad, kTrain };

struct OrderRule {
  bool shuffle = false;
  /// Of the permutations.
  uint64_t seed = 0;
  LastBatch last_batch = LastBatch::kWrap;
  /// Whether the samples are trained on; else the model is only evaluated.
  bool trains = true;
  bool operator==(const OrderRule&) const = default;
};

/// Where the sample at a place of [0, size) goes in the permutation of [0, size) that the key names. Permutations are
/// computed place by place, so that no list of all samples is ever held: swap-or-not (Hoang, Morris and Rogaway, "An
/// enciphering scheme based on a card shuffle", CRYPTO 2012, Figure 1), six rounds for each bit of the size.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key);
  int64_t at(int64_t place) const;

 private:
  struct Round {
    uint64_t key = 0;
    uint64_t offset = 0;  // below the size
  };
  uint64_t size_;
  std::vector<Round> rounds_;
};

class SampleOrder {
 public:
  /// Needs: samples and batch of 1 or more, and under kDrop as many samples as the batch.
  SampleOrder(int64_t samples, int64_t batch, const OrderRule& rule);

  int64_t samples() const { return samples_; }
  int64_t batch() const { return batch_; }
  /// Samples of the last step of an epoch under kTrain; the batch under every other rule, or where it divides them.
  int64_t rest() const;
  /// How many steps visit every sample `epochs` times, those that are dropped aside; under kWrap the last one may begin
  /// the next epoch. Negative where the number is above 2^62.
  int64_t steps(int64_t epochs) const;
  int64_t steps_per_epoch() const;
  /// How many samples a step has.
  int64_t samples_of(int64_t step) const;
  /// The samples of the steps [first, last), in whole batches.
  double batches_in(int64_t first, int64_t last) const;
  /// The samples at the places `range` of a step. Needs: the range lies within samples_of(step).
  std::vector<int64_t> rows(int64_t step, SampleRange range) const;

 private:
  int64_t samples_, batch_;
  OrderRule rule_;
};

}  // namespace graphpipe::wire

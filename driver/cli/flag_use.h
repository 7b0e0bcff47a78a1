#pragma once
// Flags that would do nothing: each needs something of the other flags or of the compiled plan. What needs what is one
// table; a flag that is given without what it needs is a usage error, whatever its value.

#include "driver/cli/options.h"
#include "support/result.h"
#include "wire/optimizers.h"

namespace graphpipe::driver {

/// What a compiled folder is.
struct RunFacts {
  bool trains = true;
  /// A name of wire/optimizers.h.
  std::string_view optimizer = wire::kDefaultOptimizer;
  /// Its weight decay is not zero.
  bool decays = true;
  /// Its schedule applies no gradients of older weights.
  bool synchronous = true;
  /// No device computes anything of a step after one of its updates.
  bool updates_at_end = true;
  /// Nodes draw random numbers, samples are shuffled, or the data are synthetic.
  bool random = true;
  /// The data are not synthetic.
  bool reads_files = false;
  /// They come from a feeder.
  bool is_fed = false;
  /// There are data to evaluate on.
  bool evaluates = false;
  size_t devices = 1;
  /// Replicas of the whole model apply one update after each micro-batch, in turn.
  bool serves_parameters = false;
  /// Replicas of a stage sum their gradients.
  bool sums_gradients = true;
  /// Some stage has another number of replicas than the first.
  bool has_uneven_replicas = false;
  /// Parameters are stored in 16 bits; gradients are computed in float16.
  bool has_16_bit_weights = true, scales_loss = true;
  /// The run keeps main weights of which no replica has all.
  bool divides_main_weights = false;
  /// What the flags of the run themselves say: it takes checkpoints, it goes on from one, it computes on GPUs.
  bool takes_checkpoints = false, resumes = false, on_gpu = false;
};

/// Of `run` and `verify`. Errors (kUsage): all flags of options.given that such a folder has no use for.
Status check_run_flags(const Options& options, const RunFacts& facts);

/// Of the other verbs: flags that other flags make useless. Errors as above.
Status check_flag_use(std::string_view verb, const Options& options);

}  // namespace graphpipe::driver

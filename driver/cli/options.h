#pragma once
// What the command line can say. One struct for all verbs: a verb's help lists the groups that it reads.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "wire/optimizers.h"
#include "wire/run_options.h"

namespace graphpipe::driver {

/// How the model is read.
struct ModelOptions {
  std::string model;
  std::string trusted_root;
  std::vector<std::string> bindings;  // NAME=SIZE for symbolic dimensions other than the batch
  bool one_sample = false;            // no dimension is the batch
  bool accepts_losses = false;        // of the exporter
  std::vector<std::string> freeze;    // patterns of parameter names
  std::string parameters;             // side file with decisions
  std::string batchnorm;              // empty: as the policy needs it
  std::string dropout;                // on or off; empty: off, and nobody asked
};

/// What is trained.
struct TrainingOptions {
  int64_t batch = 8;
  bool batch_given = false, optimizer_given = false, seed_given = false;
  std::string loss;
  std::string contrastive = "batch";  // or micro-batch: what a loss that compares samples sees together
  std::string optimizer = wire::kDefaultOptimizer;
  std::string precision = "float32";  // or bf16, fp16
  uint64_t seed = 0;
  int64_t threads = 1;
};

/// How a policy orders, where it leaves a choice.
struct OrderOptions {
  int64_t group = 0;     // micro-batches per group of interleaved orders; 0: the policy's own
  std::string backward;  // fifo or lifo; empty: fifo, and nobody asked
  bool vertical_sync = false;
  int64_t update = 0;       // samples of one update of 2bw; 0: the fewest
  std::string file;         // somebody's own order; empty: the policy's
  int64_t drain_every = 0;  // batches of asynchronous orders; 0: as many as make filling and draining cheap
};

/// How the plan is made.
struct PlanOptions {
  std::string cluster;
  int64_t devices = 0;
  std::string planner = "auto";
  std::string policy = "kfkb";
  OrderOptions order;
  int64_t stages = 0;
  std::string micro_batch = "auto";
  std::vector<std::string> replicas;  // STAGE=D
  std::string recompute = "auto";     // or always, never
  std::string execute;                // graph or chain; empty: as the policy needs, or as the plan file says
  std::string plan;                   // a plan made before, or written by hand: checked and used as given
  std::string profile;
  bool shard_optimizer = false;
  double time_limit = 0;  // seconds; 0: none
  /// Bytes of a device, and bytes per second between machines, in place of what the machine, or a profile of another
  /// project, has; 0: as it has them.
  double memory = 0, bandwidth = 0;
};

/// --profile-format of our own profiles, which are of ONNX models.
inline constexpr const char* kOwnProfileFormat = "graphpipe";

/// How a profile of another project is planned (plan --profile-format).
struct ForeignOptions {
  std::string format = kOwnProfileFormat;
  std::string topology;  // COUNT@BANDWIDTH,... innermost first
  std::string compat;    // quirks of the originals: all, or names
  bool no_replication = false, use_fewer = false, no_traffic = false;
  bool non_contiguous = false;
  int64_t micro_batches = 0;  // of a step; 0: what the file says, or 16
  std::string machines;       // devices up to the end of each machine
  int64_t cpus = -1;          // -1: what the file says
  int64_t max_degree = 0;
  int64_t profile_batch = 64;  // samples of the profiled unit of work
  bool is_foreign() const { return format != kOwnProfileFormat; }
};

/// A schedule without a model.
struct ScheduleOptions {
  std::string policy = "kfkb";
  int64_t ranks = 0;          // devices; 0: as the stage graph's file says
  int64_t chunks = 0;         // stages per device; 0: the policy's own
  int64_t micro_batches = 0;  // of a step
  OrderOptions order;
  bool search = false;
  std::string costs = "1,1,1";  // F,I,W of one micro-batch on one stage
  double latency = 0;
  std::string dag;
  std::vector<std::string> claims;  // check: of weight versions
  int max_versions = 0;             // check: 0: no claim
};

struct Options {
  ModelOptions model;
  TrainingOptions training;
  PlanOptions plan;
  ForeignOptions foreign;
  wire::RunOptions run;  // how a compiled folder is run
  /// A TOML file of its flags (config_file.h), whose flags may stand in it, and where the flags that were used go.
  std::string config;
  std::optional<wire::FlagUser> config_user;  // who takes flags of a run from it; else its flags are the verb's own
  std::string write_config;
  ScheduleOptions schedule;
  std::string input;                // the folder or file that the verb reads
  std::vector<std::string> inputs;  // of a verb that reads several
  std::string measured;             // report: the log of a run
  std::string output;               // -o
  std::string keep;                 // folder of a program that is made on the way, to be kept
  std::string planners, policies;   // comma-separated names to compare
  std::string format = "text";
  int jobs = 0;      // of sweep, at a time; 0: as many as cores
  std::string plot;  // of sweep: X,Y or X,Y,LINE
  /// Of run: pauses instead of compute, times multiplied, the part of the bytes that is sent; 0: chosen.
  bool pace = false;
  double pace_scale = 0, pace_bytes = 0;
  int restarts = 0;                 // of run, after a device has died
  std::optional<double> tolerance;  // of verify: relative, of a tensor
  std::string executed;             // a trace of `run`, to stand beside the simulated one
  std::set<std::string> given;      // the flags that the command line names: "--lr"
  bool bundle = false;
  bool link_weights = false;
  bool json = false;
  bool quiet = false;
};

}  // namespace graphpipe::driver

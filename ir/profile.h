#pragma once
// What a machine measured: seconds of each operator signature at some sample counts, and of its links. Read and
// written by files/profile.h; cost/ prices a graph with it.

#include <optional>
#include <string>
#include <vector>

#include "ir/cluster.h"
#include "support/text.h"
#include "support/units.h"

namespace graphpipe::ir {

/// Seconds of one operator signature for `samples` samples. A pass that the operator does not have is absent.
struct OpMeasurement {
  /// Operator, attributes and input types as cost/ spells them: equal signatures have equal costs.
  ModelText signature;
  Samples samples{1};
  std::optional<Seconds> forward, input_gradient, weight_gradient;
  bool operator==(const OpMeasurement&) const = default;
};

/// The measured counterpart of one LinkLevel of a cluster.
struct LinkMeasurement {
  int level = 0;
  Seconds latency;
  BytesPerSecond bandwidth;
  bool operator==(const LinkMeasurement&) const = default;
};

struct Profile {
  /// SHA-256 of the model whose operators were measured; empty where they came from several.
  std::string model_digest;
  /// CPU threads of one stage while it was measured.
  int threads = 1;
  /// Sorted by (signature, samples), each pair once.
  std::vector<OpMeasurement> operators;
  /// Sorted by level, each once.
  std::vector<LinkMeasurement> links;
  RuntimeCosts runtime;
  bool operator==(const Profile&) const = default;
};

/// The cluster with the measured links in place of those of the same level, and with the measured costs of running.
Cluster with_measurements(Cluster cluster, const Profile& profile);

}  // namespace graphpipe::ir

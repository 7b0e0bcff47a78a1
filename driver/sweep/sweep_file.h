#pragma once
// What `graphpipe sweep` plans: a TOML file with flags of `plan`, some of them with several values.
//
//   [flags]                          the same in every plan
//   model = "model.onnx"
//   loss = "cross_entropy:logits,label"
//
//   [axes]                           a plan for each combination; the last axis by name changes first
//   devices = [2, 4, 8]
//   planner = ["graphpipe", "sequential"]
//
//   [plot]                           may be left out
//   x = "devices"
//   y = "simulated_step"
//   line = "planner"

#include <string>
#include <utility>
#include <vector>

#include "support/result.h"

namespace graphpipe::driver {

/// A flag of `plan` without its dashes, or "model", and its values as they are typed. Of a switch: "true", "false".
struct SweepAxis {
  std::string name;
  std::vector<std::string> values;
};

struct SweepPlot {
  std::string x, y, line;  // names of axes, and of a column; no line: one line
};

struct Sweep {
  std::vector<std::pair<std::string, std::string>> flags;
  std::vector<SweepAxis> axes;
  /// Without x: nothing is drawn.
  SweepPlot plot;
};

inline constexpr size_t kMaxSweepCells = 100'000;

/// Errors: those of read_toml; kMalformedFile with the line for flags that `plan` has not, that a sweep gives itself,
/// or that stand twice, for other values, and for more than kMaxSweepCells plans.
Result<Sweep> read_sweep(const std::string& path);

/// What `--plot X,Y[,LINE]` draws of the sweep, in place of what its file says. Errors: kUsage.
Status plot_as_asked(const std::string& words, Sweep& sweep);

/// The columns that a plot may show.
std::vector<std::string> sweep_columns();

}  // namespace graphpipe::driver

#pragma once
// Drives the graphpipe program over the example models, as a user would.

#include <map>
#include <string>
#include <vector>

namespace graphpipe::tests {

/// What PyTorch recorded for an example model.
struct Reference {
  std::string name;
  std::string folder;  // tests/data/models/NAME or tests/data/exports/NAME
  std::string loss;    // the --loss flag
  /// Of five steps: of the full batch, or, where `flags` say so, of micro-batches of 2 whose samples stand alone.
  std::vector<double> losses;
  /// Prefix of tensor names in reference.safetensors after "gradient/" and "weight/".
  std::string tensor_prefix;
  /// The flags of the optimizer's numbers.
  std::vector<std::string> numbers;
  std::string tied_weight;  // empty where the model has none
  /// What of several samples its nodes see together.
  std::vector<std::string> flags = {};
};
/// Where samples meet in a model, those of micro-batches of 2.
Reference read_reference(const std::string& name, const std::string& optimizer = "sgd");
/// All samples of the batch, as the model says: without flags.
Reference read_batch_reference(const std::string& name);
/// The same of a model of tests/data/exports.
Reference read_export(const std::string& name);

/// A folder of the test's own, below the build folder.
std::string work_folder(const std::string& name);

/// graphpipe plan / compile with the reference's model, loss and a batch of 8. Fails the test where they fail.
void make_plan(const Reference& reference, const std::string& plan, const std::vector<std::string>& flags);
void compile(const Reference& reference, const std::string& folder, const std::vector<std::string>& flags);
/// Edits a plan file as a user would: the micro-batch of each stage; the schedule is left to the policy.
void set_micro_batches(const std::string& plan, const std::vector<int>& sizes);

/// dlrm in three stages on three devices, micro-batches of 2; compiled at the first call.
const std::string& three_stage_folder();

struct Trained {
  std::vector<double> losses;
  std::vector<int64_t> peak_bytes, predicted_peaks;
  std::string weights, gradients;  // files
};
/// Losses agree to this, relatively: docs/semantics.md, section 2.
inline constexpr double kLossTolerance = 1e-5;

/// Five steps with the optimizer's numbers of the reference: by `graphpipe run`, or by the serial interpreter.
Trained train(const Reference& reference, const std::string& folder, bool serial);

/// What `graphpipe verify --json` reports of a compiled folder; fails the test where it finds a difference.
std::string verify(const Reference& reference, const std::string& folder);

/// What `graphpipe verify --json` reports of a folder that is expected to fail it, with exit code 1.
std::string failed_verify(const Reference& reference, const std::string& folder);

/// Standard output of graphpipe with these words; the test fails where it ends otherwise than expected.
std::string graphpipe_output(std::vector<std::string> words, int expected = 0);
std::string read_text(const std::string& path);
/// The field "losses" of a report of `run --json`.
std::vector<double> losses_of(const std::string& report);
/// The float tensors of a safetensors file.
std::map<std::string, std::vector<float>> read_floats(const std::string& path);

bool same_bytes(const std::string& a, const std::string& b);
double largest_relative(const std::vector<double>& a, const std::vector<double>& b);
/// Largest |a - b| / |b| over the tensors of this kind that PyTorch recorded, in Euclidean norms.
double largest_tensor_difference(const std::string& path, const Reference& reference, const std::string& kind);
/// In how many stages of a compiled folder a parameter lies.
int stages_that_hold(const std::string& folder, const std::string& parameter);

/// A run of a compiled folder, which says of itself what `simulate --json` says, takes as much memory for the tensors
/// of its steps as the plan says; a little more where stages join the messages of smaller micro-batches, and where
/// batches follow each other without draining, whose messages overtake each other.
void check_arenas(const Reference& reference, const std::string& folder);

/// Five steps of a compiled folder, by `run` and by the serial interpreter: the same bits, PyTorch's losses, gradients
/// and weights within the tolerance, and no more memory than predicted. `what` says in the output which folder it was.
void check_folder(const Reference& reference, const std::string& folder, const std::string& what);

std::string joined(const std::vector<std::string>& words);

}  // namespace graphpipe::tests

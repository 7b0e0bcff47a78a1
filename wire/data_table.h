#pragma once
// What the inputs and labels that a plan reads must be, and what its weights are called besides. Written beside the
// programs as `data.txt`, so that whoever starts them can refuse data before the first process starts. Text form, one
// input per line:
//
//   graphpipe-data 3
//   batch 8
//   random no
//   scaled no
//   steps any
//   main weights divided
//   together 2 of 4 always
//   tied tokens.weight
//   input tokens int64 axis 0 [1,16] ids [-48,48)
//   input label int64 axis 0 [1,16] ids [0,48) ignored -100
//   input mask float32 axis -1 [16,16]

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/element_type.h"
#include "wire/id_bounds.h"

namespace graphpipe::wire {

inline constexpr std::string_view kDataTableFile = "data.txt";

/// One input or label as its file holds it.
struct DataEntry {
  std::string name;
  ElementType type = ElementType::kFloat32;
  /// Where the model has the axis of the samples, which is the first one in files; -1: the file is the whole tensor.
  int32_t batch_axis = 0;
  /// As the file has them, of one sample; of the whole tensor where it has no such axis.
  std::vector<int64_t> dims;
  IdBounds ids;
  /// The bytes of the element that fills up smaller samples (padding.h), which no file says; empty: there are none.
  std::string fill;
  bool has_samples() const { return batch_axis >= 0; }
  bool operator==(const DataEntry&) const = default;
};

/// A stage holds a node, or replicas that share one, which needs so many samples together, and runs in micro-batches of
/// that size. `always`: where the model is only evaluated too.
struct TogetherRow {
  int64_t fewest = 2;
  int64_t micro_batch = 2;
  bool always = false;
  bool operator==(const TogetherRow&) const = default;
};

struct DataTable {
  /// Samples of a step.
  int64_t batch = 1;
  /// Whether nodes of the plan draw random numbers.
  bool draws_random = false;
  /// Whether gradients are computed in float16, so that a run scales its losses.
  bool scales_loss = false;
  /// Whether every step has the whole batch, because the schedule applies gradients of parts of it within the step;
  /// else a step may have fewer samples, as far as `together` allows.
  bool whole_steps = false;
  /// Whether the replicas of some stage divide the float32 main weights of 16-bit parameters.
  bool divides_main_weights = false;
  std::vector<TogetherRow> together;
  /// Further names of weights that modules share, under which a file of weights may have them.
  std::vector<std::string> tied_names;
  std::vector<DataEntry> entries;
  bool operator==(const DataTable&) const = default;
};

std::string print_data_table(const DataTable& table);
/// Absent where the text is not of this form.
std::optional<DataTable> parse_data_table(std::string_view text);

/// A name as it stands between blanks: bytes that are none of the visible ones of ASCII, and '%', become %HH.
std::string encoded_name(const std::string& name);
/// The name again; absent where the word is not of this form.
std::optional<std::string> decoded_name(std::string_view word);

/// "[3,224,224]".
std::string shape_text(std::span<const int64_t> dims);
/// The shape again; absent where the word is not of this form.
std::optional<std::vector<int64_t>> parse_shape(std::string_view word);

}  // namespace graphpipe::wire

#pragma once
// Rows of a table of which an exporter's optimiser has kept what was looked up alone: the relative positions of T5,
// MPNet and Swin, [1, heads, places, places], where the table and the numbers of its rows are gone.
//
// Which places read the same row the elements say: rows of a table that was drawn or trained differ. That holds if the
// elements are the table's own, in another order, so the note must show that nothing has computed with them: all its
// calls move elements, or those that compute are just what the numbers of relative positions need (T5's buckets; Raffel
// et al., 2020, section 2.1).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// How the name of a tensor of rows ends that were looked up beforehand.
inline constexpr std::string_view kRowsSuffix = "_rows";

/// The calls that have made a tensor of rows.
struct LookUpCalls {
  /// The module's name of the table.
  std::string table;
  /// They have computed the numbers of the rows, from relative positions.
  bool has_positions = false;
  /// Some call repeats what was looked up.
  bool is_expanded = false;
};

/// Reads the name of the tensor and the optimiser's note on it. Nothing where other calls had a part, or the rows are
/// not of one parameter.
std::optional<LookUpCalls> look_up_calls(const std::string& tensor, const std::string& note,
                                         const ExportSignature& signature);

/// Whether the tensor's note lists calls that compute with what they look up, or multiply by, as `weight.tanh()` before
/// a look-up does: other calls than those that move elements, make constants or find the numbers of rows.
bool computes_with_elements(const std::string& tensor, const std::string& note, const ExportSignature& signature);

/// The calls that are taken to find the numbers of rows, as in `positions(arange(n) + 2)`, where the note would be the
/// same if they computed the table. That is not assumed but of a table that is all that its module has, as
/// nn.Embedding's is, and of numbers that come of one buffer at most.
std::vector<std::string> calls_of_numbers(const std::string& note, const ExportSignature& signature);

struct RowsByPlace {
  /// The axis along which the elements of a row stand.
  size_t axis = 0;
  /// For each place, in the order of the other axes, the number of its row; rows are counted as they are met.
  std::vector<int64_t> numbers;
  /// The rows, one behind the other.
  std::string elements;
  int64_t count = 0;
  /// Whether one row stands in several places.
  bool repeats() const { return count < std::ssize(numbers); }
};

/// Takes the elements of a tensor apart into rows. Nothing where equal rows may be several that began alike: where rows
/// have one element or one number, elements of different rows are equal, or places read the same row as those that
/// mirror them, as of a table that begins with its numbers by distance. Nothing for more elements than an optimiser
/// computes.
std::optional<RowsByPlace> rows_by_place(const std::vector<int64_t>& dims, std::string_view elements,
                                         size_t element_bytes);

/// Four times as many as the optimiser computes beforehand.
inline constexpr size_t kMaxElementsInRows = size_t{1} << 20;

/// Whether elements are equal to no other, as those are that were drawn or trained, but for the few that are equal by
/// chance among thousands of 32 bits: then what was looked up of them is equal only where it is one.
bool are_distinct(std::string_view elements, size_t element_bytes);

/// Whether the places are those of a matrix, and its diagonals have one row each.
bool are_of_diagonals(const std::vector<int64_t>& dims, const RowsByPlace& rows);

}  // namespace graphpipe::frontend

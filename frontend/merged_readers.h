#pragma once
// Which values of the module's program a tensor stands for that an exporter's optimiser has computed.
//
// The optimiser leaves one of several equal tensors, so that values of parameters which began alike are one: PoolFormer
// multiplies by layer_scale_1 as %unsqueeze_1 and by layer_scale_2 as %unsqueeze_3, and the file has the first alone.
// The calls of the nodes that read it name the values. Of which parameter one is follows from the code that makes the
// call, where that says so: from its line, if it is that of a call whose parameter is known (the same line of another
// layer), or names one parameter of the module and calls the same on it. Several values of one line are those of the
// members on which it calls the same, in their order.

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/exported_call.h"
#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// A value that nodes read as the tensor of another.
struct MergedValue {
  std::string name, parameter;
  std::vector<size_t> readers;
  /// Whether the same line of code makes it as makes the tensor's own value, in other modules.
  bool is_same_line = true;
};

struct TensorReading {
  /// A node that reads the tensor under its name.
  size_t own = 0;
  std::vector<MergedValue> merged;
};

/// The file and the number of a line of code, of what OnnxNode::code says.
std::string_view place_of(std::string_view code);

/// Its text.
std::string_view line_of(std::string_view code);

class MergedReaders {
 public:
  /// Needs: the body as it is while it is asked.
  MergedReaders(const GraphBody& body, const ExportSignature& signature);

  /// Those of a tensor that is computed from the parameter. Nothing where it is not sure what a node reads, and where
  /// none reads the tensor under its name.
  std::optional<TensorReading> readers_of(const std::string& tensor, const std::string& parameter) const;

  /// The parameter that is the argument of the calls of repeat which alone read the tensor; or empty.
  std::string repeated(const std::string& tensor) const;

  /// Whether the call of a node takes the parameter.
  bool is_called(const std::string& parameter) const { return called_.contains(parameter); }

 private:
  struct Reading;
  struct Found {
    std::string parameter;
    bool is_same_line = false;
  };
  std::optional<Reading> reading_of(size_t node, const std::string& tensor) const;
  using Readings = std::vector<Reading>;
  std::optional<Found> parameter_of(const Reading& reading, const Reading& known, const std::string& parameter) const;
  std::map<std::string, std::string> parameters_on_line(const Readings& line, const Reading& known,
                                                        const std::string& parameter) const;
  std::optional<Readings> readings_of(const std::string& tensor) const;
  std::set<std::string> named_by(const Reading& reading) const;

  const GraphBody& body_;
  const ExportSignature& signature_;
  const std::set<std::string> told_;                  // parameters
  std::set<std::string> called_;                      // those that calls take
  std::map<std::string, std::vector<size_t>> nodes_;  // by what they read
  std::set<std::string> made_;                        // values and tensors of the file, results of its calls
};

}  // namespace graphpipe::frontend

#pragma once
// Pieces of an HTML page. Whatever comes from a file is encoded; nothing is loaded from elsewhere.

#include <string>
#include <string_view>
#include <vector>

#include "support/text.h"

namespace graphpipe::driver {

/// Text between tags or in a quoted attribute.
inline std::string html_text(std::string_view raw) { return HtmlText::encode(ModelText(std::string(raw))).str(); }

/// At most so many bytes, whole characters, "..." where something is missing; not encoded yet.
std::string shortened(std::string_view raw, size_t max_bytes);

/// How wide ASCII is in a sans-serif font of `size` pixels, bold: an estimate that is rather too high.
double text_width(std::string_view ascii, double size);

/// What is left of ASCII on `width` pixels, by text_width; "..." where something is missing.
std::string fitted(std::string_view ascii, double width, double size);

/// "1 stage", "2 stages".
std::string counted(size_t count, std::string_view what);

/// Where a figure of the report comes from.
enum class Origin : uint8_t { kMeasured, kSimulated, kAssumed };
/// A mark behind a figure: "measured", "simulated" or "assumed".
std::string origin_mark(Origin origin);

/// Which plan of a page a part belongs to; both empty where there is one.
struct PartOf {
  /// Begins its ids: "plan-1-".
  std::string ids;
  /// Ends the names that a screen reader says: " of plan 2".
  std::string words;
};

/// A part that scrolls sideways where the page is narrow, which the keyboard reaches and a screen reader calls `name`
/// (text). `content` is HTML.
std::string wide_part(const std::string& name, const std::string& content, const std::string& also_class = "");

/// A table whose first row is the heading, and whose first column names the rows. `name` is text, `mark` and cells are
/// HTML.
std::string html_table(const std::string& name, const std::vector<std::vector<std::string>>& rows,
                       const std::string& mark = "");

/// A whole page: `title` is text, `body` HTML.
std::string html_page(std::string_view title, const std::string& body);

}  // namespace graphpipe::driver

#include "grammar/formats.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "grammar/regex.h"

namespace deepinfer::grammar {

namespace {

using std::string;

string any_of(std::initializer_list<string> options) {
  string out;
  for (const string& option : options) {
    out += (out.empty() ? "(?:" : "|") + option;
  }
  return out + ")";
}

/// RFC 3339 full-date: month lengths, and 29 February in years that divide by 4 but not by 100 unless by 400.
string date() {
  const string leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  return any_of({"[0-9]{4}-(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])", "[0-9]{4}-(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
                 "[0-9]{4}-02-(?:0[1-9]|1[0-9]|2[0-8])", leap + "-02-29"});
}

string ordinary_time() { return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"; }

string duration() {
  const string clock = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const string day = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  return "P(?:" + day + "(?:" + clock + ")?|" + clock + "|[0-9]+W)";
}

const string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";

string ipv4() {
  const string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  return octet + "(?:\\." + octet + "){3}";
}

string ipv6() {
  const string h = "[0-9A-Fa-f]{1,4}";
  const string tail = "(?:" + h + ":" + h + "|" + ipv4() + ")";
  string out = "(?:(?:" + h + ":){6}" + tail;
  // n groups before the "::", then at most 6 − n − 1 groups and the last two, or fewer.
  for (int before = 0; before <= 7; ++before) {
    const string head = before == 0 ? "" : before == 1 ? h : "(?:" + h + ":){" + std::to_string(before - 1) + "}" + h;
    const int after = 7 - before;  // groups that may follow
    out += "|" + head + "::";
    if (after >= 2) {
      out += "(?:(?:" + h + ":){0," + std::to_string(after - 2) + "}" + tail + "|" + h + ")?";
    } else if (after == 1) {
      out += "(?:" + h + ")?";
    }
  }
  return out + ")";
}

/// RFC 3986 and, with more unreserved characters, RFC 3987.
struct UriParts {
  string pchar, path_rooted, authority, query, scheme;
  explicit UriParts(const string& more) {
    const string unreserved = "A-Za-z0-9._~" + more;
    const string sub = "!$&'()*+,;=";
    const string pct = "%[0-9A-Fa-f]{2}";
    scheme = "[A-Za-z][A-Za-z0-9+.-]*";
    pchar = "(?:[" + unreserved + sub + ":@-]|" + pct + ")";
    const string user = "(?:(?:[" + unreserved + sub + ":-]|" + pct + ")*@)?";
    const string name = "(?:[" + unreserved + sub + "-]|" + pct + ")*";
    const string future = "v[0-9A-Fa-f]+\\.[" + unreserved + sub + ":-]+";
    authority = user + "(?:\\[(?:" + ipv6() + "|" + future + ")\\]|" + name + ")(?::[0-9]*)?";
    path_rooted = "(?:/" + pchar + "*)*";
    query = "(?:\\?(?:" + pchar + "|[/?])*)?(?:#(?:" + pchar + "|[/?])*)?";
  }
  [[nodiscard]] string absolute() const {
    return scheme + ":(?://" + authority + path_rooted + "|/(?:" + pchar + "+" + path_rooted + ")?|" + pchar + "+" + path_rooted + ")?" +
           query;
  }
  [[nodiscard]] string relative() const {
    return "(?://" + authority + path_rooted + "|/(?:" + pchar + "+" + path_rooted + ")?|" + first_segment + path_rooted + ")?" + query;
  }
  string first_segment;  ///< of a relative path: no colon
};

string uri(const string& more) { return UriParts(more).absolute(); }

string uri_reference(const string& more) {
  UriParts parts(more);
  const string unreserved = "A-Za-z0-9._~" + more;
  parts.first_segment = "(?:[" + unreserved + "!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+";
  return any_of({parts.absolute(), parts.relative()});
}

/// RFC 3987 ucschar, coarsely: everything beyond ASCII that is no surrogate or noncharacter plane end.
const string kInternational = "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}";

string email(const string& more) {
  const string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + more + "-]+";
  const string quoted = "\"(?:[ !#-\\[\\]-~" + more + "]|\\\\[ -~" + more + "])*\"";
  const string domain = more.empty() ? kLabel + "(?:\\." + kLabel + ")*" : "[A-Za-z0-9" + more + "-]+(?:\\.[A-Za-z0-9" + more + "-]+)*";
  return "(?:" + atom + "(?:\\." + atom + ")*|" + quoted + ")@(?:" + domain + "|\\[" + ipv4() + "\\]|\\[IPv6:" + ipv6() + "\\])";
}

string uri_template() {
  const string name = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*";
  const string spec = name + "(?::[1-9][0-9]{0,3}|\\*)?";
  const string literal = "[!#$&'(-;=?-\\[\\]_a-z~" + kInternational + "]|%[0-9A-Fa-f]{2}";
  return "(?:" + literal + "|\\{[+#./;?&=,!@|]?" + spec + "(?:," + spec + ")*\\})*";
}

/// Regular expressions whose groups nest at most six deep: a part of all, but none that is not one.
string regex_pattern() {
  const string escape = "\\\\(?:[dDwWsStnrfv0^$\\\\.*+?()\\[\\]{}|/-]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|c[A-Za-z])";
  const string char_class = "\\[\\^?(?:[^\\\\\\]\\[-]|" + escape + ")*\\]";  // without ranges between sets
  const string range_class = "\\[\\^?(?:a-z|A-Z|0-9|a-f|A-F|[^\\\\\\]\\[-]|" + escape + ")*-?\\]";
  const string repeat = "(?:(?:[*+?]|\\{[0-9]{1,3},?\\})\\?{0,1}){0,1}";
  const string plain = "(?:[^\\\\^$.*+?()\\[\\]{}|]|\\.|" + escape + "|" + char_class + "|" + range_class + ")" + repeat;
  string inner = "(?:[\\^$|]|" + plain + ")*";
  for (int depth = 0; depth < 6; ++depth) {
    inner = "(?:[\\^$|]|" + plain + "|\\((?:\\?:)?" + inner + "\\)" + repeat + ")*";
  }
  return inner;
}

string pattern_of(std::string_view name) {
  const string pointer = "(?:/(?:[^~/]|~[01])*)*";
  if (name == "date") return date();
  if (name == "time") return ordinary_time();
  if (name == "date-time") return date() + "[Tt]" + ordinary_time();
  if (name == "duration") return duration();
  if (name == "email") return email("");
  if (name == "idn-email") return email("\\u{80}-\\u{D7FF}\\u{E000}-\\u{10FFFF}");
  if (name == "hostname") return "(?=[^]{1,253}$)" + kLabel + "(?:\\." + kLabel + ")*";
  if (name == "ipv4") return ipv4();
  if (name == "ipv6") return ipv6();
  if (name == "uuid") return "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
  if (name == "uri") return uri("");
  if (name == "uri-reference") return uri_reference("");
  if (name == "iri") return uri(kInternational);
  if (name == "iri-reference") return uri_reference(kInternational);
  if (name == "uri-template") return uri_template();
  if (name == "regex") return regex_pattern();
  if (name == "json-pointer") return pointer;
  if (name == "relative-json-pointer") return "(?:0|[1-9][0-9]*)(?:#|" + pointer + ")";
  return "";
}

constexpr std::array<std::string_view, 18> kEnforced = {
    "date", "time", "date-time",     "duration", "email",         "idn-email", "hostname",     "ipv4",         "ipv6",
    "uuid", "uri",  "uri-reference", "iri",      "iri-reference", "regex",     "uri-template", "json-pointer", "relative-json-pointer"};

}  // namespace

FormatStanding format_standing(std::string_view name) {
  if (std::ranges::find(kEnforced, name) != kEnforced.end()) {
    return FormatStanding::enforced;
  }
  return name == "idn-hostname" ? FormatStanding::unsupported : FormatStanding::unknown;
}

ExprId format_expr(ExprPool& pool, std::string_view name) {
  const string pattern = pattern_of(name);
  check(!pattern.empty(), "the format is one of the enforced ones");
  const Compiled<ExprId> out = parse_regex(pool, pattern, RegexUse::whole_text);
  check(out.has_value(), "the patterns of the formats are regular expressions");
  if (name == "time") {
    return pool.either(*out, pool.leap_second());
  }
  if (name == "date-time") {
    const Compiled<ExprId> day = parse_regex(pool, date() + "[Tt]", RegexUse::whole_text);
    return pool.either(*out, pool.concat(*day, pool.leap_second()));
  }
  return *out;
}

}  // namespace deepinfer::grammar

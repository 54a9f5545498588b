// The names that \p{…} knows: general categories, scripts and binary properties of Unicode, short and long, in loose form
// (lower case without blanks, low lines and hyphens). Names only; what they contain is the regex engine's business.
#pragma once

#include <string_view>

namespace deepinfer::recipe {

/// Blank-separated, so that the lists read as lists.
inline constexpr std::string_view kGeneralCategories =
    " c other cc control cntrl cf format cn unassigned co privateuse cs surrogate l letter lc casedletter ll lowercaseletter lm "
    "modifierletter lo otherletter lt titlecaseletter lu uppercaseletter m mark combiningmark mc spacingmark me enclosingmark mn "
    "nonspacingmark n number nd decimalnumber digit nl letternumber no othernumber p punctuation punct pc connectorpunctuation pd "
    "dashpunctuation pe closepunctuation pf finalpunctuation pi initialpunctuation po otherpunctuation ps openpunctuation s symbol sc "
    "currencysymbol sk modifiersymbol sm mathsymbol so othersymbol z separator zl lineseparator zp paragraphseparator zs "
    "spaceseparator any ascii assigned ";

inline constexpr std::string_view kScripts =
    " adlam adlm ahom anatolianhieroglyphs hluw arabic arab armenian armn avestan avst balinese bali bamum bamu bassavah bass batak batk "
    "bengali beng bhaiksuki bhks bopomofo bopo brahmi brah braille brai buginese bugi buhid buhd canadianaboriginal cans carian cari "
    "caucasianalbanian aghb chakma cakm cham cherokee cher chorasmian chrs common zyyy coptic copt qaac cuneiform xsux cypriot cprt "
    "cyprominoan cpmn cyrillic cyrl deseret dsrt devanagari deva divesakuru diak dogra dogr duployan dupl egyptianhieroglyphs egyp elbasan "
    "elba elymaic elym ethiopic ethi georgian geor glagolitic glag gothic goth grantha gran greek grek gujarati gujr gunjalagondi gong "
    "gurmukhi guru han hani hangul hang hanifirohingya rohg hanunoo hano hatran hatr hebrew hebr hiragana hira imperialaramaic armi "
    "inherited zinh qaai inscriptionalpahlavi phli inscriptionalparthian prti javanese java kaithi kthi kannada knda katakana kana "
    "katakanaorhiragana hrkt kawi kayahli kali kharoshthi khar khitansmallscript kits khmer khmr khojki khoj khudawadi sind lao laoo latin "
    "latn lepcha lepc limbu limb lineara lina linearb linb lisu lycian lyci lydian lydi mahajani mahj makasar maka malayalam mlym mandaic "
    "mand manichaean mani marchen marc masaramgondi gonm medefaidrin medf meeteimayek mtei mendekikakui mend meroiticcursive merc "
    "meroitichieroglyphs mero miao plrd modi mongolian mong mro mroo multani mult myanmar mymr nabataean nbat nagmundari nagm nandinagari "
    "nand newtailue talu newa nko nkoo nushu nshu nyiakengpuachuehmong hmnp ogham ogam olchiki olck oldhungarian hung olditalic ital "
    "oldnortharabian narb oldpermic perm oldpersian xpeo oldsogdian sogo oldsoutharabian sarb oldturkic orkh olduyghur ougr oriya orya "
    "osage "
    "osge osmanya osma pahawhhmong hmng palmyrene palm paucinhau pauc phagspa phag phoenician phnx psalterpahlavi phlp rejang rjng runic "
    "runr samaritan samr saurashtra saur sharada shrd shavian shaw siddham sidd signwriting sgnw sinhala sinh sogdian sogd sorasompeng "
    "sora "
    "soyombo soyo sundanese sund sylotinagri sylo syriac syrc tagalog tglg tagbanwa tagb taile tale taitham lana taiviet tavt takri takr "
    "tamil taml tangsa tnsa tangut tang telugu telu thaana thaa thai tibetan tibt tifinagh tfng tirhuta tirh toto ugaritic ugar vai vaii "
    "vithkuqi vith wancho wcho warangciti wara yezidi yezi yi yiii zanabazarsquare zanb garay gara gurungkhema gukh kiratrai krai olonal "
    "onao sunuwar sunu todhri todr tulutigalari tutg unknown zzzz ";

inline constexpr std::string_view kBinaryProperties =
    " asciihexdigit ahex alphabetic alpha bidicontrol bidic bidimirrored bidim cased caseignorable ci changeswhencasefolded cwcf "
    "changeswhencasemapped cwcm changeswhenlowercased cwl changeswhennfkccasefolded cwkcf changeswhentitlecased cwt changeswhenuppercased "
    "cwu "
    "dash defaultignorablecodepoint di deprecated dep diacritic dia emoji emojicomponent ecomp emojimodifier emod emojimodifierbase ebase "
    "emojipresentation epres extendedpictographic extpict extender ext graphemebase grbase graphemeextend grext graphemelink grlink "
    "hexdigit "
    "hex hyphen idcontinue idc ideographic ideo idstart ids idsbinaryoperator idsb idstrinaryoperator idst joincontrol joinc "
    "logicalorderexception loe lowercase lower math noncharactercodepoint nchar otheralphabetic oalpha otherdefaultignorablecodepoint odi "
    "othergraphemeextend ogrext otheridcontinue oidc otheridstart oids otherlowercase olower othermath omath otheruppercase oupper "
    "patternsyntax patsyn patternwhitespace patws prependedconcatenationmark pcm quotationmark qmark radical regionalindicator ri "
    "sentenceterminal sterm softdotted sd terminalpunctuation term unifiedideograph uideo uppercase upper variationselector vs whitespace "
    "wspace space xidcontinue xidc xidstart xids ";

}  // namespace deepinfer::recipe

# Makes the man page of a program from its page source and the output of --help, so that no sentence is written twice.
# usage: awk -f merge-help.awk HELP PAGE.1.in      HELP: the output of --help; the page goes to stdout
#
# In the source an option's entry is '.It Fl -name' and the details that go beyond the help, if there are any. Before them
# come the option's letter, its value and the text of the help. Fails if an option lacks an entry, if an entry has no option
# or has a second one, and if the details repeat the first clause of the help.

BEGIN {
    text_column = 34   # of --help: kNameColumns in launcher/options/command_line.cpp
    max_columns = 100  # of the lines of text in the page
}

# The help: options, their values and texts, whose lines are joined.
FNR == NR {
    if ($0 ~ /^  -/) {
        has_text = length($0) > text_column && substr($0, text_column, 1) == " "
        read_option(has_text ? substr($0, 1, text_column) : $0)
        if (has_text) add_help(substr($0, text_column + 1))
    } else if (option != "" && match($0, /^ +/) && RLENGTH == text_column) {
        add_help(substr($0, text_column + 1))
    } else {
        option = ""
    }
    next
}

FNR == 1 {
    print ".\\\" Made from " base_name(FILENAME) " and the output of --help: edit those."
    entry = ""
}
/^\.Nm ./ && program == "" { program = $2 }
/^\.(It|El|Sh|Ss)( |$)/ { end_entry() }
/^\.It Fl / {
    begin_entry()
    next
}
entry != "" && !has_details {
    print ".Pp"
    has_details = 1
}
entry != "" { details = details " " plain_text($0) }
{ print }

END {
    end_entry()
    if (options == 0) complain(FILENAME, "the help, read first, shows no option")
    for (i = 1; i <= options; ++i) {
        if (!(names[i] in entry_line))
            complain(FILENAME, "no entry for --" names[i] ", which --help shows: add '.It Fl -" names[i] "'")
    }
    exit failed
}

function complain(where, text) {
    print where ": " text > "/dev/stderr"
    failed = 1
}

function base_name(path) {
    sub(/.*\//, "", path)
    return path
}

# Reads "-r,--redirects 0..3|N:0..3,...".
function read_option(words,    part, count, spelling, i, spellings) {
    count = split(words, part, " ")
    option = ""
    spellings = split(part[1], spelling, ",")
    for (i = 1; i <= spellings; ++i)
        if (spelling[i] ~ /^--/) option = substr(spelling[i], 3)
    if (option == "" || count > 2) {
        complain(FILENAME ":" FNR, "not an option and its value: " words)
        return
    }
    names[++options] = option
    value[option] = count == 2 ? part[2] : ""
    for (i = 1; i <= spellings; ++i)
        if (spelling[i] ~ /^-[^-]/) letter[option] = substr(spelling[i], 2)
    help[option] = ""
}

function add_help(text) {
    sub(/^ +/, "", text)
    help[option] = help[option] (help[option] == "" ? "" : " ") text
}

function begin_entry() {
    entry = substr($3, 2)
    has_details = 0
    details = ""
    if (NF > 3 || $3 !~ /^-/) complain(FILENAME ":" FNR, "write '.It Fl -name' alone; --help has the rest: " $0)
    if (entry in entry_line) complain(FILENAME ":" FNR, "second entry for --" entry ": remove one")
    entry_line[entry] = FNR
    if (!(entry in help)) {
        complain(FILENAME ":" FNR, "--help shows no --" entry ": remove the entry, or correct its name")
        entry = ""
        return
    }
    if (help[entry] == "") complain(FILENAME ":" FNR, "--help has no text for --" entry)
    print ".It Fl " (entry in letter ? letter[entry] " , -" : "-") entry signature(value[entry])
    print_help()
}

# The first clause, up to '(', ';' or the end of the sentence, is the text that shells show with completions, too.
function end_entry(    clause) {
    if (entry == "") return
    clause = help[entry]
    sub(/[(;].*|\. .*/, "", clause)
    clause = letters_only(clause)
    if (clause != " " && index(letters_only(details), clause))
        complain(FILENAME ":" entry_line[entry], "the details of --" entry " repeat its help, which the page has already:" clause)
    entry = ""
}

# Without requests and macros: a line of the page as letters_only() compares it with the help.
function plain_text(line) {
    if (line !~ /^\./) return line
    sub(/^\.Nm/, ". " program, line)
    while (match(line, /[. ][A-Z][a-z]( |$)/)) line = substr(line, 1, RSTART - 1) " " substr(line, RSTART + 3)
    return line
}

function letters_only(text) {
    text = " " tolower(text) " "
    gsub(/[^a-z0-9]+/, " ", text)
    return text
}

# "N|MIN:MAX" becomes " Ar N | Ar MIN Ns No \&: Ns Ar MAX": what is in capitals stands for a value, other words are typed.
function signature(form,    made, atom, glue) {
    glue = " "
    while (form != "") {
        if (match(form, /^[A-Z][A-Z_]*/)) atom = "Ar "
        else if (match(form, /^[a-z][a-z0-9]*(-[a-z0-9]+)*/) || match(form, /^[0-9]+(\.\.[0-9]+)?/)) atom = "Cm "
        else if (match(form, /^\|/)) atom = ""
        else if (match(form, /^\.\.\./) || match(form, /^./)) atom = "No \\&"
        if (atom == "") {
            made = made " |"
            glue = " "
        } else {
            made = made glue atom substr(form, 1, RLENGTH)
            glue = " Ns "
        }
        form = substr(form, RLENGTH + 1)
    }
    return made
}

# Prints the help of the entry as sentences of the page.
function print_help(    text, word, count, i) {
    text = help[entry]
    if (match(text, /^[a-z]+[ ,;:]/) || text ~ /^[a-z]+$/) text = toupper(substr(text, 1, 1)) substr(text, 2)
    if (text !~ /[.!?]$/) text = text "."
    line = ""
    after_option = 0
    count = split(text, word, " ")
    for (i = 1; i <= count; ++i) print_word(word[i])
    end_line()
}

# Names of options and variables, the program and the option's value have macros, which end the line of text.
function print_word(word,    open, core, close_, macro) {
    core = word
    match(core, /^[("']*/)
    open = substr(core, 1, RLENGTH)
    core = substr(core, RLENGTH + 1)
    match(core, /[]),.;:"']*$/)
    close_ = substr(core, RSTART)
    core = substr(core, 1, RSTART - 1)
    if (core ~ /^--[a-z][a-z-]*$/) macro = "Fl " substr(core, 2)
    else if (core ~ /^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$/) macro = "Ev " core
    else if (core ~ /^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+=[A-Za-z0-9]+$/) macro = "Ev " substr(core, 1, index(core, "=") - 1) " Ns " substr(core, index(core, "="))
    else if (core == program) macro = "Nm"
    else if (core == program "'s") macro = "Nm Ns 's"
    else if (core ~ /^[A-Z]+$/ && (after_option || is_value(core))) macro = "Ar " core
    after_option = macro ~ /^Fl/ && close_ == ""
    if (macro == "") {
        add_to_line(word)
        return
    }
    end_line()
    print (open == "" ? "." : ".No " open " Ns ") macro (close_ == "" ? "" : " Ns No \\&" close_)
}

# Returns whether `word` is a part of the value in capitals.
function is_value(word,    part, count, i) {
    count = split(value[entry], part, /[^A-Z]+/)
    for (i = 1; i <= count; ++i)
        if (part[i] == word) return 1
    return 0
}

function add_to_line(word) {
    gsub(/\\/, "\\e", word)
    sub(/^-/, "\\-", word)
    if (line != "" && length(line) + length(word) >= max_columns) end_line()
    if (line == "" && word ~ /^[.']/) word = "\\&" word
    line = line (line == "" ? "" : " ") word
    if (word ~ /[^.][.]$/) end_line()  # a sentence begins on a line of its own
}

function end_line() {
    if (line != "") print line
    line = ""
}

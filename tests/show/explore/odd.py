"""Ids and texts that a careless page would stumble over, or obey."""

HOSTILE = "<script>document.title='hacked'</script><img src=x onerror=\"alert(1)\">"
ODD = [
    "a/b/../c",
    "50% & more?x=1#top",
    "say \"hi\" 'there'",
    "två ord 猫 🌳",
    HOSTILE,
    "../../etc/passwd",
    "two  spaces",
    "back\\slash\nline",
    "__proto__",
]
